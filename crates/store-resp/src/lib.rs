//! RESP, the wire format of Redis: bytes to requests, replies to bytes.
//!
//! In flow order:
//! - [`Request`]: one command with its arguments, borrowed from the bytes it came in;
//! - [`RequestParser`]: finds requests in a growing buffer, within [`Limits`];
//! - [`ReplyWriter`]: writes replies of RESP2 or RESP3 straight into the [`Output`];
//! - [`Reply`], [`ReplyParser`], [`ReplyScanner`]: the client's side, for tools and tests;
//! - [`slot`]: the part of a cluster that a key lies in, on which both sides must agree.
//!
//! ```
//! use store_resp::{Limits, Parsed, Protocol, ReplyWriter, RequestParser};
//!
//! let bytes = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n";
//! let mut parser = RequestParser::default();
//! let parsed = parser.parse(bytes, &Limits::default());
//! let Ok(Parsed::Request { consumed }) = parsed else { panic!("no request") };
//! assert_eq!(consumed, bytes.len());
//!
//! let mut reply = ReplyWriter::new(Protocol::Resp2);
//! reply.bulk(parser.request(bytes).arg(1));
//! assert_eq!(reply.as_bytes(), b"$2\r\nhi\r\n");
//! ```

mod inline;
mod large;
mod number;
mod output;
mod parse;
mod reply;
mod request;
pub mod slot;
mod write;

pub use inline::split_quoted;
pub use large::LargeArgs;
pub use number::{DoubleText, format_integer, parse_integer};
pub use output::{Output, SHARED_MIN};
pub use parse::{Limits, Parsed, ProtocolError, RequestParser, glimpse_key};
pub use reply::{Reply, ReplyError, ReplyParser, ReplyScanner};
pub use request::{OwnedRequest, Request, Span, write_request};
pub use write::{Protocol, ReplyWriter};
