//! The words of `tenure cli`. Their names are those of redis-cli, so that fingers need not learn.

use std::ffi::OsString;
use std::path::PathBuf;

/// Talk to a store: ours, Redis or Valkey.
///
/// With a command, runs it and prints its reply; without, reads commands from the keyboard or, line
/// by line, from standard input. Replies look as in redis-cli: readable on a terminal, raw
/// elsewhere.
///
/// The store is the one of --url, --host and --port, --socket, or --local; else that of
/// TENURE_STORE; else 127.0.0.1:6379. A password in TENURE_STORE or REDISCLI_AUTH is not visible
/// in the process list.
///
/// Exit codes: 0, 1 when the store answered with an error, 64 usage, 69 store unreachable.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
#[command(after_long_help = "\
Examples:
  tenure cli
  tenure cli -h db.example -p 6380 GET greeting
  tenure cli --json HGETALL user:7
  tenure cli -c -h node-1 SET user:7 ada
  tenure cli --scan --pattern 'user:*'")]
pub(crate) struct Arguments {
    /// Host of the store.
    #[arg(short = 'h', long, value_name = "HOST")]
    pub(super) host: Option<String>,
    /// Port of the store.
    #[arg(short, long, value_name = "PORT")]
    pub(super) port: Option<u16>,
    /// Unix socket of the store.
    #[arg(short, long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    pub(super) socket: Option<PathBuf>,
    /// Address: redis://[user:password@]host[:port][/db], rediss://…?ca=FILE, unix:///path?db=N.
    #[arg(short, long, value_name = "URL", conflicts_with_all = ["host", "port", "socket"])]
    pub(super) url: Option<String>,
    /// The local store, which other commands use when no store is named.
    #[arg(long, conflicts_with_all = ["host", "port", "socket", "url", "tls"])]
    pub(super) local: bool,
    /// Password. Everybody on this machine can read it in the process list: prefer REDISCLI_AUTH.
    #[arg(short = 'a', long = "pass", value_name = "PASSWORD")]
    pub(super) password: Option<String>,
    /// User to log in as.
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
    /// Ask for the password on the terminal.
    #[arg(long, conflicts_with = "password")]
    pub(super) askpass: bool,
    /// Do not warn about -a.
    #[arg(long)]
    pub(super) no_auth_warning: bool,
    /// Database number.
    #[arg(short = 'n', long = "db", value_name = "DB")]
    pub(super) database: Option<u32>,
    /// Encrypt the connection; see also --cacert, --cert, --key, --insecure.
    #[arg(long)]
    pub(super) tls: bool,
    /// Certificates of the authorities to trust.
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(super) cacert: Option<PathBuf>,
    /// The client's certificate.
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    pub(super) cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "FILE", requires_all = ["tls", "cert"])]
    pub(super) key: Option<PathBuf>,
    /// Accept any certificate: anybody on the network path can read and change everything.
    #[arg(long, requires = "tls")]
    pub(super) insecure: bool,
    /// Give up connecting after this many seconds.
    #[arg(short = 't', long, value_name = "SECONDS", default_value_t = 10)]
    pub(super) timeout: u64,
    /// Cluster mode: follow to the node that has the key when a node says MOVED or ASK.
    #[arg(short = 'c')]
    pub(super) cluster: bool,
    /// Speak RESP3, which has types for maps, sets and doubles.
    #[arg(short = '3')]
    pub(super) resp3: bool,
    /// Speak RESP2 even with --json.
    #[arg(short = '2', conflicts_with = "resp3")]
    pub(super) resp2: bool,
    #[command(flatten)]
    pub(super) shape: Shape,
    #[command(flatten)]
    pub(super) work: Work,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// Print this help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// What replies look like.
#[derive(Debug, clap::Args)]
pub(super) struct Shape {
    /// Replies as JSON, one to a line; speaks RESP3 unless -2 is given.
    #[arg(long, conflicts_with_all = ["raw", "no_raw", "csv"])]
    pub(super) json: bool,
    /// Replies as comma-separated values.
    #[arg(long, conflicts_with_all = ["raw", "no_raw"])]
    pub(super) csv: bool,
    /// Replies as they are, even on a terminal.
    #[arg(long, conflicts_with = "no_raw")]
    pub(super) raw: bool,
    /// Readable replies, even where standard output is not a terminal.
    #[arg(long)]
    pub(super) no_raw: bool,
    /// The separator between the elements of a raw reply [default: a line break].
    #[arg(short = 'd', value_name = "TEXT")]
    pub(super) delimiter: Option<String>,
}

/// What to do instead of, or beside, running one command.
#[derive(Debug, clap::Args)]
pub(super) struct Work {
    /// Take the last argument of the command from standard input.
    #[arg(short = 'x')]
    pub(super) last_from_stdin: bool,
    /// Run the command this many times; -1 for ever.
    #[arg(short = 'r', value_name = "TIMES", default_value_t = 1, allow_negative_numbers = true)]
    pub(super) repeat: i64,
    /// Wait this many seconds between repetitions (and samples of --stat and --latency).
    #[arg(short = 'i', value_name = "SECONDS", default_value_t = 0.0)]
    pub(super) interval: f64,
    /// Exit with 1 after an error reply. This is always so; accepted because redis-cli has it.
    #[arg(short = 'e')]
    pub(super) errors_fail: bool,
    /// Send the commands on standard input in bulk: RESP, or a command to a line.
    #[arg(long, conflicts_with_all = ["scan", "latency", "stat", "eval", "command"])]
    pub(super) pipe: bool,
    /// With --pipe: give up when the store is silent for this many seconds at the end; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(super) pipe_timeout: u64,
    /// List all keys, without blocking the store as KEYS does.
    #[arg(long, conflicts_with_all = ["latency", "stat", "eval", "command"])]
    pub(super) scan: bool,
    /// With --scan: only keys that match this pattern.
    #[arg(long, value_name = "PATTERN", requires = "scan")]
    pub(super) pattern: Option<String>,
    /// With --scan: only keys of this type.
    #[arg(long = "type", value_name = "TYPE", requires = "scan")]
    pub(super) kind: Option<String>,
    /// With --scan: keys to look at per round trip.
    #[arg(long, value_name = "N", requires = "scan", default_value_t = 10)]
    pub(super) count: u64,
    /// Measure round trips until Ctrl-C, or -r times.
    #[arg(long, conflicts_with_all = ["stat", "eval", "command"])]
    pub(super) latency: bool,
    /// Print a line of figures every second, or every -i seconds, until Ctrl-C, or -r times.
    #[arg(long, conflicts_with_all = ["eval", "command"])]
    pub(super) stat: bool,
    /// Run a Lua script: --eval FILE KEY… , ARGUMENT…
    #[arg(long, value_name = "FILE")]
    pub(super) eval: Option<PathBuf>,
}
