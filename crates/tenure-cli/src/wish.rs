//! `tenure hand-over` and `tenure resign`: asking the leader.
//!
//! Nobody but the leader's own process ends a term: it stops its work first.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{AskOutcome, Leadership, Observation, SeenLeader, Vacancy};

use crate::exit::{self, Failure};
use crate::output::{OutputOptions, plain, talk};
use crate::run::{block_on, duration};
use crate::store_options::{StoreObserver, Target};
use crate::who::vacancy;

/// Ask the leader to hand over to another member.
///
/// Its work ends before the other's begins. Waits until that is done (0), refused with a reason
/// (1) or not answered (75).
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure hand-over nightly --to web-2
  tenure hand-over nightly --to web-2 --timeout 30s --json")]
pub(crate) struct HandOver {
    /// The successor, by name or whole id; `tenure members` lists them.
    #[arg(long, value_name = "ID")]
    to: String,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    target: Target,
}

/// Ask the leader to step down, so that another instance can lead.
///
/// Its work ends first. Waits until that is done (0), refused with a reason (1) or not answered
/// (75).
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure resign nightly")]
pub(crate) struct Resign {
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct Wait {
    /// How long to wait for the answer; twice the leader's ttl by default, at least 5s.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    output: OutputOptions,
}

pub(crate) fn hand_over(arguments: HandOver) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let asked = store_observer.observer.ask_to_hand_over(&arguments.to);
    let mut asked = store_observer.within(arguments.wait.timeout, asked)?;
    if let Some(AskOutcome::Refused { why }) = &mut asked
        && why.ends_with("is not a member")
    {
        why.push_str(&store_observer.members_text());
    }
    arguments.wait.report(&store_observer, asked)
}

pub(crate) fn resign(arguments: Resign) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let asked = store_observer.observer.ask_to_resign();
    let asked = store_observer.within(arguments.wait.timeout, asked)?;
    arguments.wait.report(&store_observer, asked)
}

/// How many members a refusal names at the most.
const NAMED_MAX: usize = 8;

impl StoreObserver {
    /// Whom a hand-over could have named; empty where that cannot be found out.
    fn members_text(&self) -> String {
        let Ok(seen) = self.wait(self.observer.look()) else { return String::new() };
        let ids: Vec<&str> = seen.members.iter().map(|member| member.id.as_str()).collect();
        let more = match ids.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more: `tenure members` lists them"),
        };
        match ids.is_empty() {
            true => "; there is none".to_owned(),
            false => format!("; those are {}{more}", ids[..ids.len().min(NAMED_MAX)].join(", ")),
        }
    }

    /// Why there is no answer, as far as a look shows it. Who renews its lease is not stuck, and
    /// whoever cannot be looked at may be at it.
    fn why_unanswered(&self) -> String {
        let Ok(seen) = self.wait(self.observer.look()) else { return STANDS.to_owned() };
        let leader = seen.leadership.leader();
        let stands = seen.wish.as_ref().is_some_and(|wish| {
            wish.refused.is_none() && leader.is_some_and(|leader| leader.token == wish.token)
        });
        match leader {
            Some(leader) if !is_heard(leader, &seen) && stands => format!("{STUCK}; {STANDS}"),
            Some(leader) if !is_heard(leader, &seen) => STUCK.to_owned(),
            Some(_) if !stands => {
                "the leader renews its lease and does not answer, and the request \
                                   does not stand any more: `tenure status` shows what it does"
                    .to_owned()
            }
            _ => STANDS.to_owned(),
        }
    }

    /// Why nobody takes over, where that will not change by itself within a lease.
    fn why_nobody_may_lead(&self) -> Option<String> {
        let seen = self.wait(self.observer.look()).ok()?;
        match &seen.leadership {
            Leadership::Vacant(why @ (Vacancy::Paused { .. } | Vacancy::Quarantine { .. })) => {
                Some(format!("nobody can take over: {}", vacancy(why)))
            }
            _ => None,
        }
    }

    /// What came of asking; `None` when the caller's own limit was reached first.
    fn within(
        &self,
        limit: Option<Duration>,
        asked: impl Future<Output = Result<AskOutcome, tenure::Error>>,
    ) -> Result<Option<AskOutcome>, Failure> {
        block_on(async {
            let answered = match limit {
                None => asked.await,
                Some(limit) => match tokio::time::timeout(limit, asked).await {
                    Ok(answered) => answered,
                    Err(_) => return Ok(None),
                },
            };
            answered.map(Some).map_err(|error| crate::store_options::blame(&self.tenure, error))
        })
    }
}

impl Wait {
    /// `outcome` (`done`, `refused`, `not-answered`, `nobody-leads`), `leader`, `why`.
    fn report(
        self,
        store_observer: &StoreObserver,
        asked: Option<AskOutcome>,
    ) -> Result<ExitCode, Failure> {
        let unanswered = || Some(store_observer.why_unanswered());
        let (code, outcome, leader, why) = match asked {
            Some(AskOutcome::Done { leader: Some(leader) }) => {
                (0, "done", Some(leader.id.to_string()), None)
            }
            Some(AskOutcome::Done { leader: None }) => {
                (0, "done", None, store_observer.why_nobody_may_lead())
            }
            Some(AskOutcome::Refused { why }) => (exit::NO, "refused", None, Some(why)),
            Some(AskOutcome::NobodyLeads) => {
                let hint = store_observer.wait(store_observer.observer.look());
                let hint = hint.ok().and_then(|seen| store_observer.meant_text(&seen));
                let hint = hint.map(|hint| format!(": {hint}"));
                let why = format!("there is nobody to ask{}", hint.unwrap_or_default());
                (exit::NO, "nobody-leads", None, Some(why))
            }
            Some(AskOutcome::NotAnswered { leader }) => {
                (exit::TIMED_OUT, "not-answered", Some(leader.id.to_string()), unanswered())
            }
            _ => (exit::TIMED_OUT, "not-answered", None, unanswered()),
        };
        let json: Value = json!({ "outcome": outcome, "leader": leader, "why": why });
        if self.output.json || code == 0 {
            self.output.print(&json, || match &leader {
                Some(leader) => format!("done: {} leads", plain(leader)),
                None => "done: nobody has taken over yet".to_owned(),
            });
        }
        if let Some(why) = why {
            talk(&format!("{}: {}", outcome.replace('-', " "), plain(&why)));
        }
        Ok(ExitCode::from(code))
    }
}

/// How many leases a leader may be silent before it counts as gone, as for `tenure clear`.
const SILENT_LEASES_MAX: u32 = 3;

/// Whether the leader has said recently that it is there.
fn is_heard(leader: &SeenLeader, seen: &Observation) -> bool {
    let member = seen.members.iter().find(|member| member.id == leader.id);
    member.is_some_and(|member| {
        let silent_max = member.record.ttl.saturating_mul(SILENT_LEASES_MAX);
        seen.server_time.since(member.beat_at) <= silent_max
    })
}

const STANDS: &str = "the request stands, and may still be carried out: `tenure status` shows it";
const STUCK: &str = "the leader may be stuck, cut off or another program: `tenure status` shows its \
                     lease, `tenure clear` ends it, with --force where nothing shows that it is gone";
