//! `tenure config check`: which settings count, and where each comes from.

use std::process::ExitCode;

use serde_json::json;
use tenure::config::Config;

use crate::exit::Failure;
use crate::output::{OutputOptions, plain, table, talk};
use crate::store_options::StoreOptions;

/// Look at the configuration.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Check(Arguments),
}

/// Check the configuration and print each value with its origin.
///
/// Reads what every other command reads: the file, its profile, TENURE_… variables and flags.
/// Secrets are stars. Exits with 78 when something is wrong, and says everything that is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure config check
  tenure config check --config tenure.toml --profile staging")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    store: StoreOptions,
}

pub(crate) fn run(Command::Check(arguments): Command) -> Result<ExitCode, Failure> {
    let config = arguments.store.loader()?.load()?;
    arguments.output.print(&as_json(&config), || as_text(&config));
    for warning in config.warnings() {
        talk(&format!("{} ({}): {}", warning.key, warning.origin, warning.text));
    }
    Ok(ExitCode::SUCCESS)
}

/// `store`, `profile`, `settings` (each `key`, `value`, `origin`), `warnings` (likewise, `text`).
fn as_json(config: &Config) -> serde_json::Value {
    let settings = config.settings().iter().map(|setting| {
        json!({
            "key": setting.key,
            "value": setting.value,
            "origin": setting.origin.to_string(),
        })
    });
    let warnings = config.warnings().iter().map(|warning| {
        json!({
            "key": warning.key,
            "origin": warning.origin.to_string(),
            "text": warning.text,
        })
    });
    json!({
        "store": config.store.url().map(|_| config.store.to_string()),
        "profile": config.profile,
        "settings": settings.collect::<Vec<_>>(),
        "warnings": warnings.collect::<Vec<_>>(),
    })
}

fn as_text(config: &Config) -> String {
    let rows = config.settings().iter().map(|setting| {
        vec![plain(&setting.key), plain(&setting.value), plain(&setting.origin.to_string())]
    });
    let mut text = table(&["SETTING", "VALUE", "FROM"], &rows.collect::<Vec<_>>());
    if config.store.url().is_none() && config.enabled {
        text += "\nno store is named, so it is the local one: see `tenure local status`\n";
    }
    text
}
