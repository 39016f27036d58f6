//! The log of long-running commands: one line per event, on stderr.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tenure_core::text::escaped_json;
use tracing_subscriber::filter::LevelFilter;

use crate::{clock, log_line, log_queue};

/// How much is logged, and how.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogOptions {
    /// How the log on stderr is written.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
    /// Log every change of role, too.
    #[arg(long, short)]
    verbose: bool,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Whether the log is JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Has everything that this process says on stderr written as JSON from now on.
pub(crate) fn write_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

pub(crate) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warn,
    Error,
}

/// A line for people, in the form of the log: one that reads JSON reads every line.
pub(crate) fn line(level: Level, text: &str) -> String {
    if !is_json() {
        return format!("tenure: {text}");
    }
    let level = match level {
        Level::Info => "INFO",
        Level::Warn => "WARN",
        Level::Error => "ERROR",
    };
    let timestamp = log_line::iso_moment(clock::unix_ms());
    let line = json!({
        "timestamp": timestamp, "level": level, "message": text, "target": "tenure",
    });
    escaped_json(&line.to_string())
}

impl LogOptions {
    /// Logs from here on. A second call changes nothing.
    pub(crate) fn start(self) {
        let level = if self.verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
        log_queue::start();
        let lines = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(|| log_queue::Writer)
            .with_ansi(false);
        let _ = match self.log_format {
            LogFormat::Text => lines.with_target(false).try_init(),
            LogFormat::Json => {
                write_json();
                lines.json().flatten_event(true).try_init()
            }
        };
    }
}
