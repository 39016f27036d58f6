//! Where log lines go: stdout, a file, and the system's log.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use store_engine::{Config, ProcessSettings, SystemLogSettings};
use store_server::LogLevel;

use crate::log_line::{self, Role};
use crate::log_queue::STDOUT;

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
    role: Role,
    /// `None` is stdout.
    file: Option<PathBuf>,
    system: Option<Arc<SystemLog>>,
}

impl Logger {
    /// As the settings say. Fails when the file or the system's log cannot be written.
    pub(super) fn of(role: Role, config: &Config) -> anyhow::Result<Self> {
        let ProcessSettings { log_file: path, system_log, .. } = &config.settings().process;
        let file = (!path.is_empty()).then(|| std::path::absolute(path)).transpose()?;
        if let Some(path) = &file {
            append(path, "").with_context(|| format!("cannot write logfile {}", path.display()))?;
        }
        if file.is_none() {
            // A reader that stalls must stop neither the server nor its end.
            STDOUT.start();
        }
        let system = system_log.as_ref().map(SystemLog::open).transpose()?;
        let level = config.settings().logs.level;
        Ok(Self { level, role, file, system: system.map(Arc::new) })
    }

    /// Whether lines go only to the terminal or pipe that we were started with.
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
        self.write_line(&log_line::format(self.role, level, text));
        if let Some(system) = &self.system {
            system.send(level, text);
        }
    }

    fn write_line(&self, line: &str) {
        match &self.file {
            // A full disk or a reader that is gone is no reason to end.
            None => drop(STDOUT.write(format!("{line}\n").as_bytes())),
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
    fn open(settings: &SystemLogSettings) -> anyhow::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SYSTEM_LOG).with_context(|| {
            format!("syslog-enabled: cannot reach {SYSTEM_LOG}; turn it off or start a syslog")
        })?;
        socket.set_nonblocking(true)?;
        let facility = settings.local_facility.map_or(USER, |number| LOCAL0 + number);
        Ok(Self { socket, facility, identity: settings.identity.clone() })
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
