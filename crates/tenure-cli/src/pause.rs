//! `tenure pause`, `resume` and `clear`: what an operator does to an election.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use tenure::{Leadership, Observation, Vacancy};

use crate::author;
use crate::exit::{self, Failure};
use crate::output::{OutputOptions, duration as shown, plain, talk};
use crate::run::duration;
use crate::store_options::{Target, no_such};

/// Grant no new term for a while, for maintenance. A running term goes on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure pause nightly --for 30m")]
pub(crate) struct Pause {
    /// How long the pause lasts, at most 7d; `tenure resume` ends it earlier.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "10m")]
    lasts: Duration,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    target: Target,
}

/// End a pause. Exits with 1 when there is none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure resume nightly")]
pub(crate) struct Resume {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    target: Target,
}

/// For emergencies: end a stuck term without its holder.
///
/// Asks for confirmation. Refuses if the holder sent a heartbeat recently, unless forced: use
/// `tenure resign` then. Tokens keep growing, and nobody leads until no instance can hold an old
/// lease. Exits with 1 when there is no term to end.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure clear nightly --reason 'web-1 was switched off'")]
pub(crate) struct Clear {
    /// The reason, for the history, which also says who cleared it.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Clear even if the holder sent a heartbeat recently.
    #[arg(long)]
    force: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn pause(arguments: Pause) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let name = &arguments.target.name;
    let seen = store_observer.wait(store_observer.observer.look())?;
    store_observer.wait(store_observer.observer.pause(arguments.lasts))?;
    let mut json = json!({ "name": name, "paused_for_ms": arguments.lasts.as_millis() as u64 });
    // It may be paused before it begins, so that this is no reason to refuse.
    if store_observer.is_unheard_of(&seen) {
        let meant = store_observer.meant(&seen);
        let why = "nobody takes part in it, and no term of it is known: is the name right?";
        let hint = meant.as_ref().map(|meant| format!(" ({})", no_such(name, meant)));
        talk(&format!("warning: {}: {why}{}", plain(name), hint.unwrap_or_default()));
        if let Some(meant) = meant {
            json["did_you_mean"] = json!(meant);
        }
    }
    arguments.output.print(&json, || {
        let (name, lasts) = (plain(name), shown(arguments.lasts));
        format!("{name} is paused for {lasts}: a running term goes on, no new one begins")
    });
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn resume(arguments: Resume) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let name = &arguments.target.name;
    let seen = store_observer.wait(store_observer.observer.look())?;
    if seen.paused_for.is_none() {
        let why = format!("{} is not paused, so there is nothing to end", plain(name));
        let hint = store_observer.meant_text(&seen).map(|hint| format!(": {hint}"));
        return Err(Failure::new(exit::NO, format!("{why}{}", hint.unwrap_or_default())));
    }
    store_observer.wait(store_observer.observer.resume())?;
    let json = json!({ "name": name, "paused_for_ms": null });
    arguments.output.print(&json, || format!("{} goes on", plain(name)));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn clear(arguments: Clear) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let name = &arguments.target.name;
    let seen = store_observer.wait(store_observer.observer.look())?;
    if let Some(why) = nothing_to_clear(&seen) {
        let hint = store_observer.meant_text(&seen).map(|hint| format!(": {hint}"));
        let why = format!("nobody leads {}: {why}{}", plain(name), hint.unwrap_or_default());
        return Err(Failure::new(exit::NO, why));
    }
    if !arguments.yes {
        let holder = match seen.leadership.leader() {
            Some(leader) => format!("the term of {}", plain(leader.id.as_str())),
            None => "whatever is left of a term".to_owned(),
        };
        confirm(&format!("End {holder} of {} without asking it?", plain(name)))?;
        // Whoever was asked may have taken a while to answer.
        let now = store_observer.wait(store_observer.observer.look())?;
        if now.leadership.leader() != seen.leadership.leader() {
            let why = "the leader has changed meanwhile: nothing was done; check again";
            return Err(Failure::new(exit::NO, format!("{}: {why}", plain(name))));
        }
    }
    let by = author::author();
    let reason = format!("{} (by {by})", arguments.reason);
    match arguments.force {
        true => store_observer.wait(store_observer.observer.force_clear(&reason))?,
        false => store_observer.wait(store_observer.observer.clear(&reason))?,
    }
    let former = seen.leadership.leader().map(|leader| leader.id.as_str());
    let json = json!({ "name": name, "cleared": former, "reason": arguments.reason, "by": by });
    arguments.output.print(&json, || {
        format!("{} is cleared: nobody leads until old leases have ended", plain(name))
    });
    Ok(ExitCode::SUCCESS)
}

/// Why clearing would end nothing, and only keep everybody out for a lease.
fn nothing_to_clear(seen: &Observation) -> Option<&'static str> {
    match &seen.leadership {
        // Whatever the store cannot make sense of may be the remains of a term.
        _ if !seen.warnings.is_empty() => None,
        Leadership::Vacant(Vacancy::Free) => Some("there is nothing to clear"),
        Leadership::Vacant(Vacancy::Paused { .. }) => {
            Some("an operator paused it (`tenure resume` ends that), there is nothing to clear")
        }
        Leadership::Vacant(Vacancy::Quarantine { .. }) => {
            Some("old leases are being waited out, there is nothing to clear")
        }
        _ => None,
    }
}

/// Asks a person; anything but yes is a no.
fn confirm(question: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked without a terminal: add --yes"));
    }
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{question} Type yes: ");
    let _ = stderr.flush();
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(Failure::new(exit::NO, "nothing was done")),
    }
}
