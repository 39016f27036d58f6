//! `tenure doctor`: what is wrong with the store and the elections on it, and what to do.

mod election;
mod finding;
mod replicas;
mod rights;
mod servers;
mod store;

use std::process::ExitCode;

use serde_json::json;
use tenure::config::Config;
use tenure::{Resource, Tenure, blocking};

use self::election::ElectionFacts;
use self::finding::Severity;
pub(crate) use self::finding::{Code, Finding};
use self::servers::{Examined, Seen};
use crate::exit::{self, Failure};
use crate::local;
use crate::output::{OutputOptions, table};
use crate::store_options::{self, StoreOptions, blame};

/// How much of the history is looked at.
const ENTRIES: usize = 100;

/// Look for what is wrong with a store and its elections, and say what to do.
///
/// Without names it looks at the store and at the elections that the configuration names. Changes
/// nothing. Exits with 1 when it finds a problem; risks and notes alone are 0.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure doctor nightly report
  tenure doctor --store redis://redis.internal
  tenure doctor --list")]
pub(crate) struct Arguments {
    /// The elections.
    names: Vec<String>,
    /// List what it looks for, and check nothing.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    store: StoreOptions,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.list {
        list(arguments.output);
        return Ok(ExitCode::SUCCESS);
    }
    let config = store_options::load_to_look(arguments.store.loader()?)?;
    let is_local = local::serves(&config);
    let mut names = arguments.names;
    if names.is_empty() {
        names = config.elections.keys().cloned().collect();
    }
    let mut findings = configuration(&config);
    let Examined { findings: of_servers, servers } =
        servers::examine(&config, &keys(&config, &names)?)?;
    findings.extend(of_servers);
    if is_local {
        // Another server beside it would help nobody: others cannot reach even this one.
        findings.retain(|finding| finding.code != Code::SingleNode);
        findings.push(local_store(&config));
    }
    let tenure = store_options::connect(config)?;
    let is_lost = findings.iter().any(|finding| finding.code == Code::QuorumLost);
    // Without a majority there is nothing to be known of an election.
    let is_refused = findings.iter().any(|finding| finding.code == Code::WritesRefused);
    for name in names.iter().filter(|_| !is_lost) {
        let found = election(&tenure, name)?;
        // Candidates cannot say that they are there while nothing can be written.
        let of_silence = [Code::NeverStarted, Code::NoCandidate, Code::OneCandidate];
        let is_known = |code: Code| !is_refused || !of_silence.contains(&code);
        let is_new = |found: &Finding| !is_told(found, &findings) && is_known(found.code);
        let found: Vec<_> = found.into_iter().filter(is_new).collect();
        findings.extend(found);
    }
    findings.sort_by_key(|finding| finding.severity());
    let problems =
        findings.iter().filter(|finding| finding.severity() == Severity::Problem).count();
    let json = json!({
        "store": tenure.store(),
        "elections": names,
        "servers": servers.iter().map(Seen::as_json).collect::<Vec<_>>(),
        "problems": problems,
        "findings": findings.iter().map(Finding::as_json).collect::<Vec<_>>(),
    });
    arguments.output.print(&json, || as_text(&tenure, &names, &servers, &findings));
    Ok(ExitCode::from(match problems {
        0 => 0,
        _ if is_lost => exit::UNREACHABLE,
        _ => exit::NO,
    }))
}

fn local_store(config: &Config) -> Finding {
    let reach = local::reach().unwrap_or_else(|| "only this machine is coordinated".to_owned());
    let what = format!(
        "no store is named, so this is the local one: {reach}; every other host and account elects \
         a leader of its own"
    );
    let next = "set --store or TENURE_STORE to a store that all hosts can reach; nothing to do if \
                only this account on this machine takes part";
    Finding::new(Code::LocalStore, what, next).about(&config.store.to_string())
}

/// Whether this is a warning of a node that is among the findings itself.
fn is_told(found: &Finding, findings: &[Finding]) -> bool {
    let mut down = findings.iter().filter(|finding| finding.code == Code::NodeDown);
    found.code == Code::StoreWarning && down.any(|node| found.what.contains(&node.about))
}

/// Per finding: `code`, `severity`, `looks_for`.
fn list(output: OutputOptions) {
    let each = |code: &Code| {
        json!({
            "code": code.word(),
            "severity": code.severity().word(),
            "looks_for": code.sought(),
        })
    };
    let json = json!({ "findings": Code::ALL.iter().map(each).collect::<Vec<_>>() });
    output.print(&json, || {
        let row = |code: &Code| [code.word(), code.severity().word(), code.sought()];
        let rows: Vec<_> =
            Code::ALL.iter().map(|code| row(code).map(str::to_owned).into()).collect();
        table(&["CODE", "SEVERITY", "LOOKS FOR"], &rows)
    });
}

fn as_text(tenure: &Tenure, names: &[String], servers: &[Seen], findings: &[Finding]) -> String {
    let looked = match names {
        [] => "no election: give their names to check them".to_owned(),
        names => names.join(", "),
    };
    let mut text = format!("checked {} and {looked}\n", tenure.store());
    text.extend(servers.iter().filter_map(Seen::as_text));
    for finding in findings {
        text += &finding.as_text();
    }
    if findings.is_empty() {
        text += "nothing found\n";
    }
    text
}

fn configuration(config: &Config) -> Vec<Finding> {
    let each = |warning: &tenure::config::Warning| {
        let what = format!("{}: {}", warning.key, warning.text);
        Finding::new(Code::Configuration, what, "`tenure config check` shows where it is set")
            .about(&warning.origin.to_string())
    };
    config.warnings().iter().map(each).collect()
}

/// What the elections keep in the store; where none is named, what one would.
fn keys(config: &Config, names: &[String]) -> Result<Vec<Resource>, Failure> {
    let key = |name: &String| match config.named(name).and_then(|one| one.key.as_ref()) {
        Some(key) => Resource::with_key(name, key),
        None => Resource::with_prefix(&config.prefix, name),
    };
    let keys = names.iter().map(key).collect::<Result<_, _>>();
    keys.map_err(|error| Failure::from(tenure::Error::from(error)))
}

fn election(tenure: &Tenure, name: &str) -> Result<Vec<Finding>, Failure> {
    let observer = tenure.observe(name)?;
    let seen = match blocking::wait(observer.look()) {
        Ok(seen) => seen,
        Err(tenure::Error::Conflict { what }) => {
            let next = "choose another --key, or remove it yourself";
            return Ok(vec![Finding::new(Code::ForeignKey, what, next).about(name)]);
        }
        Err(tenure::Error::Store(error)) if error.kind() == tenure::StoreErrorKind::Denied => {
            let next = error.next_step().unwrap_or("grant what docs/acl.md lists");
            let what = error.clone().without_next_step().to_string();
            return Ok(vec![Finding::new(Code::Acl, what, next).about(name)]);
        }
        // The store itself answered before, so this is about the election.
        Err(tenure::Error::Store(error)) => {
            let next = error.next_step().unwrap_or("see what else is found about the store");
            let what = error.clone().without_next_step().to_string();
            return Ok(vec![Finding::new(Code::NoAnswer, what, next).about(name)]);
        }
        Err(error) => return Err(blame(tenure, error)),
    };
    let history = blocking::wait(observer.history(ENTRIES)).unwrap_or_default();
    let facts = ElectionFacts { seen: &seen, history: &history };
    Ok(facts.findings().into_iter().map(|found| found.about(name)).collect())
}
