//! `tenure who`: who leads.

use std::process::ExitCode;

use serde_json::{Value, json};
use tenure::{Leadership, Token, Vacancy};

use crate::exit::{self, Failure};
use crate::output::{OutputOptions, duration, plain, talk};
use crate::store_options::{StoreObserver, Target, no_such};

/// Print who leads.
///
/// Exits with 0 and the leader's id, with 1 when nobody leads, with 69 when the store cannot be
/// reached.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure who nightly
  tenure who nightly --json --store redis://redis.internal")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let seen = store_observer.sight()?.now();
    let mut json = leadership_json(&arguments.target.name, &seen.leadership);
    for warning in &seen.warnings {
        talk(&format!("warning: {}", plain(warning)));
    }
    match &seen.leadership {
        Leadership::Led { leader, .. } => {
            if arguments.output.json {
                let leads_for = store_observer.leads_for(&seen);
                json["leads_for_ms"] = json!(leads_for.map(|length| length.as_millis() as u64));
            }
            arguments.output.print(&json, || plain(leader.id.as_str()));
            Ok(ExitCode::SUCCESS)
        }
        Leadership::Vacant(why) => {
            let meant = store_observer.meant(&seen);
            if let Some(meant) = &meant {
                json["did_you_mean"] = json!(meant);
            }
            if arguments.output.json {
                arguments.output.print(&json, String::new);
            }
            let why = match meant {
                Some(meant) => no_such(&arguments.target.name, &meant),
                None => format!("{}{}", vacancy(why), store_observer.doubt_of(why)),
            };
            talk(&format!("nobody leads {}: {why}", plain(&arguments.target.name)));
            Ok(ExitCode::from(exit::NO))
        }
    }
}

/// `name`, `leader` (null when nobody leads), `token`, `remaining_ms`, `foreign`, and `vacancy`
/// with `vacancy_left_ms` and `vacancy_why` when nobody leads.
pub(crate) fn leadership_json(name: &str, leadership: &Leadership) -> Value {
    match leadership {
        Leadership::Led { leader, remaining } => json!({
            "name": name,
            "leader": leader.id.as_str(),
            "token": leader.token.map(Token::get),
            "remaining_ms": remaining.map(|left| left.as_millis() as u64),
            "foreign": leader.foreign,
        }),
        Leadership::Vacant(why) => {
            let (word, left) = match why {
                Vacancy::Quarantine { left, .. } => ("quarantine", Some(*left)),
                Vacancy::Paused { left } => ("paused", Some(*left)),
                Vacancy::Reserved { left, .. } => ("reserved", Some(*left)),
                Vacancy::Unconfirmed { .. } => ("unconfirmed", None),
                _ => ("free", None),
            };
            json!({
                "name": name,
                "leader": null,
                "vacancy": word,
                "vacancy_left_ms": left.map(|left| left.as_millis() as u64),
                "vacancy_why": quarantine_why(why),
            })
        }
    }
}

fn quarantine_why(vacancy: &Vacancy) -> Option<&str> {
    match vacancy {
        Vacancy::Quarantine { why, .. } => Some(why),
        _ => None,
    }
}

/// What is added to `free` where the store has no past: it may have lost it, and only a candidate
/// can tell.
const NO_PAST: &str = "; the store knows of no earlier term: if it was restarted without its data, \
                       or emptied, a leader that it has forgotten may run until its lease ends";

impl StoreObserver {
    /// What makes it doubtful that a resource is free; empty if nothing does.
    pub(crate) fn doubt_of(&self, why: &Vacancy) -> &'static str {
        let has_no_past = || {
            let history = self.wait(self.observer.history(1));
            history.is_ok_and(|entries| entries.is_empty())
        };
        match why {
            Vacancy::Free if has_no_past() => NO_PAST,
            _ => "",
        }
    }
}

/// Why nobody leads, and what to do.
pub(crate) fn vacancy(why: &Vacancy) -> String {
    match why {
        Vacancy::Quarantine { left, why } => format!(
            "an earlier leader may still believe in its lease, {} left: {}",
            duration(*left),
            plain(why)
        ),
        Vacancy::Paused { left } => {
            format!("an operator paused it, {} left (`tenure resume` ends that)", duration(*left))
        }
        Vacancy::Reserved { to, left } => {
            let to = plain(to.as_str());
            format!("it was handed over to {to}, which has {} to take it", duration(*left))
        }
        Vacancy::Unconfirmed { by, .. } => {
            let by = plain(by.as_str());
            format!(
                "{by} was granted it, but fewer replicas than mode strict asks for have confirmed \
                 that: attach the missing ones (INFO replication on the primary lists those that \
                 are there), or remove them for good and set replicas=N to how many are left"
            )
        }
        _ => "it is free (is any candidate running? `tenure members` lists them; `tenure doctor NAME` \
              tells whether the store refuses writes)"
            .to_owned(),
    }
}
