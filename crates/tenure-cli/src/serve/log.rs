//! Where log lines go: stdout, a file, and the system's log.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use store_engine::Config;
use store_server::LogLevel;

use crate::log_line;

/// Where the system listens for log lines.
const SYSTEM_LOG: &str = "/dev/log";
/// What the facilities of `syslog-facility` are numbered from.
const LOCAL0: u8 = 16;
const USER: u8 = 1;

/// Writes log lines; may be cloned and used by several threads.
#[derive(Clone, Debug)]
pub(super) struct Logger {
    /// `loglevel` at the start; the server follows its changes by itself.
    level: LogLevel,
    /// `None` is stdout.
    file: Option<PathBuf>,
    system: Option<Arc<SystemLog>>,
}

impl Logger {
    /// As the settings say. Fails when the file or the system's log cannot be written.
    pub(super) fn of(config: &Config) -> anyhow::Result<Self> {
        let path = config.text("logfile");
        let file = (!path.is_empty()).then(|| std::path::absolute(path)).transpose()?;
        if let Some(path) = &file {
            append(path, "").with_context(|| format!("cannot write logfile {}", path.display()))?;
        }
        let system = config.is_on("syslog-enabled").then(|| SystemLog::open(config)).transpose()?;
        Ok(Self { level: LogLevel::of(config), file, system: system.map(Arc::new) })
    }

    /// Whether lines go to whoever started us and to nobody else.
    pub(super) fn is_stdout(&self) -> bool {
        self.file.is_none() && self.system.is_none()
    }

    /// Writes a line, unless it matters less than `loglevel` asks for.
    pub(super) fn log(&self, level: LogLevel, text: &str) {
        if level >= self.level {
            self.write(level, text);
        }
    }

    /// Writes lines as they are, without a head, unless they matter less than `loglevel` asks for.
    pub(super) fn log_raw(&self, level: LogLevel, text: &str) {
        if level >= self.level {
            self.write_line(text);
        }
    }

    /// Writes a line.
    pub(super) fn write(&self, level: LogLevel, text: &str) {
        self.write_line(&log_line::format(level, text));
        if let Some(system) = &self.system {
            system.send(level, text);
        }
    }

    fn write_line(&self, line: &str) {
        match &self.file {
            // A full disk or a reader that is gone is no reason to end.
            None => drop(writeln!(std::io::stdout().lock(), "{line}")),
            // Opened for each line, so that the file can be moved away at any time. When it
            // cannot be written, there is nowhere left to say so.
            Some(path) => drop(append(path, &format!("{line}\n"))),
        }
    }
}

fn append(path: &PathBuf, text: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
}

/// The system's log, by its datagram socket.
#[derive(Debug)]
struct SystemLog {
    socket: UnixDatagram,
    facility: u8,
    identity: String,
}

impl SystemLog {
    fn open(config: &Config) -> anyhow::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SYSTEM_LOG).with_context(|| {
            format!("syslog-enabled: cannot reach {SYSTEM_LOG}; turn it off or start a syslog")
        })?;
        socket.set_nonblocking(true)?;
        let name = config.text("syslog-facility");
        let local = name.strip_prefix("local").and_then(|digit| digit.parse::<u8>().ok());
        let facility = local.map_or(USER, |number| LOCAL0 + number);
        Ok(Self { socket, facility, identity: config.text("syslog-ident").to_owned() })
    }

    fn send(&self, level: LogLevel, text: &str) {
        let severity = match level {
            LogLevel::Debug => 7,
            LogLevel::Verbose => 6,
            LogLevel::Notice => 5,
            LogLevel::Warning => 4,
        };
        let priority = self.facility * 8 + severity;
        let text = log_line::on_one_line(text);
        let line = format!("<{priority}>{}[{}]: {text}", self.identity, std::process::id());
        // A log that is full or gone must not keep us from serving.
        let _ = self.socket.send(line.as_bytes());
    }
}
