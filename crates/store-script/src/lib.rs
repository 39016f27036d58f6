//! Lua 5.1 scripts and functions, as Redis 7.0 runs them: sandboxed, bounded, killable.
//!
//! Independent of keyspaces and sockets. Text and arguments come in; commands go out through the
//! [`Host`] that the server is; one reply comes back as RESP bytes. In flow order:
//! - [`Limits`]: what scripts may use at most;
//! - [`Interpreter`]: keeps scripts and libraries, and runs them;
//! - [`Host`]: what a running script asks of the server: commands, permissions, time to live;
//! - [`ScriptOutcome`]: how a run ended.
//!
//! ```
//! use store_script::{AclAnswer, Host, Interpreter, Invocation, Limits, LogLevel, Origin};
//! use store_script::{Protocol, Replication, Tick};
//!
//! struct Echo;
//! impl Host for Echo {
//!     fn call(&mut self, arguments: &[&[u8]], _: Protocol, reply: &mut Vec<u8>) {
//!         reply.extend_from_slice(format!(":{}\r\n", arguments.len()).as_bytes());
//!     }
//!     fn acl_check(&mut self, _: &[&[u8]]) -> AclAnswer {
//!         AclAnswer::Allowed
//!     }
//!     fn log(&mut self, _: LogLevel, _: &[u8]) {}
//!     fn set_replication(&mut self, _: Replication) {}
//!     fn tick(&mut self) -> Tick {
//!         Tick::Continue
//!     }
//! }
//!
//! let mut interpreter = Interpreter::new(Limits::default());
//! let code = b"return redis.call('ECHO', KEYS[1])";
//! let digest = interpreter.load_script(code, Origin::Evaluated).unwrap();
//! let invocation =
//!     Invocation { keys: &[b"k"], arguments: &[], protocol: Protocol::Resp2 };
//! let mut reply = Vec::new();
//! interpreter.run_script(&digest, invocation, &mut Echo, &mut reply);
//! assert_eq!(reply, b":2\r\n");
//! ```

mod error;
mod flags;
mod functions;
mod host;
mod interpreter;
mod limits;
mod scripts;
mod shebang;

mod context;
mod number;
mod random;
mod reply;

mod library;
#[expect(unsafe_code, reason = "the C interface of Lua; see the module's own words")]
mod lua;
mod sandbox;

pub use error::{LibraryError, LoadError};
pub use flags::Flags;
pub use functions::{FunctionInfo, Library};
pub use host::{AclAnswer, Host, LogLevel, Protocol, Replication, Tick};
pub use interpreter::{Existing, Interpreter, Invocation, ScriptOutcome};
pub use limits::Limits;
pub use scripts::{Digest, Origin};

/// What EVALSHA answers for a script that is not kept.
pub const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
/// What FCALL answers for a function that is not there.
pub const NO_FUNCTION: &str = "ERR Function not found";
