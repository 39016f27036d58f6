//! `tenure config check`: which settings count, and where each comes from.

use std::process::ExitCode;

use serde_json::json;
use tenure::config::{Config, Origin};
use tenure_core::timing::duration_text;
use tenure_sidecar::{ServerSettings, SidecarError};

use crate::exit::Failure;
use crate::output::{OutputOptions, plain, plain_up_to, table, talk};
use crate::store_options::StoreOptions;

/// Look at the configuration.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Check(Arguments),
}

/// Check the configuration and print each value with its origin.
///
/// Reads what every other command reads: the file, its profile, TENURE_… variables and flags.
/// Secrets are shown as stars. Exits with 78 when something is wrong, for example an address that
/// cannot work. It does not connect to the store.
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
    check_address(&config)?;
    check_sidecar(&config)?;
    arguments.output.print(&as_json(&config), || as_text(&config));
    for warning in config.warnings() {
        talk(&format!("{} ({}): {}", warning.key, warning.origin, warning.text));
    }
    Ok(ExitCode::SUCCESS)
}

/// What every other command would say about the address, whether anybody is there or not.
fn check_address(config: &Config) -> Result<(), Failure> {
    let Some(url) = config.store.url() else { return Ok(()) };
    let Err(error) = tenure::backend::check_address(url.reveal()) else { return Ok(()) };
    let names = ["store.url", "store.url_file", "store.host", "store.socket"];
    let given = config.settings().iter().find(|setting| names.contains(&setting.key.as_str()));
    let origin = given.map(|setting| format!("{}: ", setting.origin)).unwrap_or_default();
    let failure = Failure::from(tenure::Error::from(error));
    Err(Failure { message: format!("{origin}{}", failure.message), ..failure })
}

/// What `tenure sidecar` would say about its section, whether or not it can listen there.
fn check_sidecar(config: &Config) -> Result<(), Failure> {
    tenure_sidecar::check_hooks(config)?;
    let settings = ServerSettings::from_config(&config.sidecar);
    let Err(error) = settings.and_then(|settings| settings.check()) else { return Ok(()) };
    let named = match &error {
        SidecarError::TokenTooShort { .. } => "sidecar.token",
        SidecarError::Address { .. } | SidecarError::OpenToAll { .. } => "sidecar.listen",
        _ => "sidecar.tls",
    };
    let given = config.settings().iter().filter(|setting| setting.origin != Origin::Default);
    let given = { given }.find(|setting| setting.key.starts_with(named));
    let origin = given.map(|setting| format!("{}: ", setting.origin)).unwrap_or_default();
    let failure = Failure::from(error);
    Err(Failure { message: format!("{origin}{}", failure.message), ..failure })
}

/// Whether no election is held, so that nobody asks a store.
fn is_switched_off(config: &Config) -> bool {
    let mut named = config.elections.values();
    !config.enabled || !config.defaults.enabled && !named.any(|election| election.enabled)
}

/// A value that nobody set and that follows from another one.
struct Derived {
    key: String,
    value: String,
    rule: &'static str,
}

/// The times that follow from a ttl, where they are not set: for `defaults`, and for each election
/// that has times of its own.
fn derived(config: &Config) -> Vec<Derived> {
    let is_set = |key: &str| config.settings().iter().any(|setting| setting.key == key);
    let named = config.elections.iter();
    let named = named.map(|(name, election)| (format!("elections.{name}"), election));
    let scopes = [("defaults".to_owned(), &config.defaults)].into_iter().chain(named);
    let mut rows = Vec::new();
    for (scope, election) in scopes {
        let Ok(timing) = election.timing() else { continue };
        let times = [
            ("renew_every", election.renew_every, timing.renew_every(), "a third of ttl"),
            ("stop_grace", election.stop_grace, timing.stop_grace(), "30 % of ttl"),
        ];
        let has_own = ["ttl", "renew_every", "stop_grace"];
        if !has_own.iter().any(|name| is_set(&format!("{scope}.{name}"))) {
            continue;
        }
        for (name, given, value, rule) in times {
            if given.is_none() {
                let key = format!("{scope}.{name}");
                rows.push(Derived { key, value: duration_text(value), rule });
            }
        }
    }
    rows
}

/// `store`, `profile`, `settings` (each `key`, `value`, `origin`), `derived` (`key`, `value`,
/// `rule`), `warnings` (`key`, `origin`, `text`).
fn as_json(config: &Config) -> serde_json::Value {
    let settings = config.settings().iter().map(|setting| {
        json!({
            "key": setting.key,
            "value": setting.value,
            "origin": setting.origin.to_string(),
        })
    });
    let derived = derived(config)
        .into_iter()
        .map(|row| json!({ "key": row.key, "value": row.value, "rule": row.rule }));
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
        "derived": derived.collect::<Vec<_>>(),
        "warnings": warnings.collect::<Vec<_>>(),
    })
}

/// A value as a whole: people compare them.
fn shown(value: &str) -> String {
    const SHOWN_MAX: usize = 2_000;
    plain_up_to(SHOWN_MAX, value)
}

fn as_text(config: &Config) -> String {
    let rows = config.settings().iter().map(|setting| {
        vec![plain(&setting.key), shown(&setting.value), plain(&setting.origin.to_string())]
    });
    let derived = derived(config).into_iter();
    let derived = derived.map(|row| vec![plain(&row.key), row.value, row.rule.to_owned()]);
    let mut rows: Vec<Vec<String>> = rows.chain(derived).collect();
    rows.sort();
    let mut text = table(&["SETTING", "VALUE", "FROM"], &rows);
    if is_switched_off(config) {
        text += "\nelections are switched off (TENURE_ENABLED or enabled = false): every instance \
                 acts alone, and no store is asked\n";
    } else if config.store.url().is_none() {
        text += "\nno store is named, so the local store is used, which coordinates this machine \
                 only: see `tenure local status`, or set --store or TENURE_STORE\n";
    }
    text
}
