//! The log of long-running commands: one line per event, on stderr.

use tracing_subscriber::filter::LevelFilter;

use crate::log_queue;

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
            LogFormat::Json => lines.json().flatten_event(true).try_init(),
        };
    }
}
