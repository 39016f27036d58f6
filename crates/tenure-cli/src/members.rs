//! `tenure members`: who takes part.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{Member, Observation, ServerTime};

use crate::exit::Failure;
use crate::output::{OutputOptions, duration, moment, plain, table, talk};
use crate::store_options::Target;

/// A member that was silent for this many of its own leases is taken for gone.
const SILENT_LEASES_MAX: u32 = 3;

/// List who takes part: the leader, the standbys, and members that are silent.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure members nightly
  tenure members nightly --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let seen = store_observer.sight()?.now();
    let json = json!({ "name": arguments.target.name, "members": members_json(&seen) });
    arguments.output.print(&json, || members_text(&seen));
    if let Some(hint) = store_observer.meant_text(&seen) {
        talk(&hint);
    }
    Ok(ExitCode::SUCCESS)
}

/// Per member: `id`, `instance`, `role`, `priority`, `ready`, `ready_since`, `departing`,
/// `stalled`, `version`, `ttl_ms`, `beat_ms_ago`, `alive`, `metadata`.
pub(crate) fn members_json(seen: &Observation) -> Vec<Value> {
    let one = |member: &Member| {
        let record = &member.record;
        json!({
            "id": member.id.as_str(),
            "instance": member.id.name(),
            "role": role(seen, member),
            "priority": record.priority,
            "ready": record.ready,
            "ready_since": member.ready_since.map(moment),
            "departing": record.departing,
            "stalled": record.stalled,
            "version": record.version,
            "ttl_ms": record.ttl.as_millis() as u64,
            "beat_ms_ago": silence(seen.server_time, member).as_millis() as u64,
            "alive": is_alive(seen.server_time, member),
            "metadata": record.metadata,
        })
    };
    seen.members.iter().map(one).collect()
}

pub(crate) fn members_text(seen: &Observation) -> String {
    let (headings, rows) = members_table(seen);
    match rows.is_empty() {
        true => NO_MEMBERS.to_owned(),
        false => table(&headings, &rows),
    }
}

pub(crate) const NO_MEMBERS: &str = "no members: start a candidate with `tenure run`, or with the library; a job of `tenure once` \
     is a member only while it runs";

/// Headings, and a row per member.
pub(crate) fn members_table(seen: &Observation) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let rows: Vec<Vec<String>> = seen.members.iter().map(|member| row(seen, member)).collect();
    let mut headings =
        vec!["ID", "ROLE", "PRIORITY", "READY", "TTL", "HEARD", "VERSION", "METADATA"];
    // Many applications say neither of the last two.
    while headings.len() > 1 && rows.iter().all(|row| row[headings.len() - 1].is_empty()) {
        headings.pop();
    }
    (headings, rows)
}

fn row(seen: &Observation, member: &Member) -> Vec<String> {
    let record = &member.record;
    let metadata = record.metadata.iter().map(|(name, value)| format!("{name}={value}"));
    vec![
        plain(member.id.as_str()),
        role(seen, member).to_owned(),
        record.priority.to_string(),
        readiness(member).to_owned(),
        duration(record.ttl),
        format!("{} ago", duration(silence(seen.server_time, member))),
        plain(&record.version),
        plain(&metadata.collect::<Vec<_>>().join(" ")),
    ]
}

fn readiness(member: &Member) -> &'static str {
    match &member.record {
        record if record.departing => "departing",
        record if record.stalled => "stalled",
        record if record.ready => "yes",
        _ => "no",
    }
}

fn role(seen: &Observation, member: &Member) -> &'static str {
    match seen.leadership.leader() {
        Some(leader) if leader.id == member.id => "leader",
        _ if !is_alive(seen.server_time, member) => "silent",
        _ => "standby",
    }
}

pub(crate) fn silence(now: ServerTime, member: &Member) -> Duration {
    now.since(member.beat_at)
}

/// Whether it has sent a heartbeat within a few of its own leases.
pub(crate) fn is_alive(now: ServerTime, member: &Member) -> bool {
    silence(now, member) <= member.record.ttl.saturating_mul(SILENT_LEASES_MAX)
}
