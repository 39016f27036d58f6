//! `tenure hand-over` and `tenure resign`: asking the leader.
//!
//! Nobody but the leader's own process ends a term: it stops its work first.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::AskOutcome;

use crate::exit::{self, Failure};
use crate::output::{OutputOptions, plain, talk};
use crate::run::{block_on, duration};
use crate::store_options::Target;

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
    arguments.wait.report(asked)
}

pub(crate) fn resign(arguments: Resign) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    let asked = store_observer.observer.ask_to_resign();
    arguments.wait.report(store_observer.within(arguments.wait.timeout, asked)?)
}

/// How many members a refusal names at the most.
const NAMED_MAX: usize = 8;

impl crate::store_options::StoreObserver {
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
    fn report(self, asked: Option<AskOutcome>) -> Result<ExitCode, Failure> {
        let (code, outcome, leader, why) = match asked {
            Some(AskOutcome::Done { leader }) => {
                (0, "done", leader.map(|leader| leader.id.to_string()), None)
            }
            Some(AskOutcome::Refused { why }) => (exit::NO, "refused", None, Some(why)),
            Some(AskOutcome::NobodyLeads) => {
                let why = "there is nobody to ask".to_owned();
                (exit::NO, "nobody-leads", None, Some(why))
            }
            Some(AskOutcome::NotAnswered { leader }) => {
                (exit::TIMED_OUT, "not-answered", Some(leader.id.to_string()), Some(stuck()))
            }
            _ => (exit::TIMED_OUT, "not-answered", None, Some(stuck())),
        };
        let json: Value = json!({ "outcome": outcome, "leader": leader, "why": why });
        if self.output.json || code == 0 {
            self.output.print(&json, || match &leader {
                Some(leader) => format!("done: {} leads", plain(leader)),
                None => "done: nobody has taken over yet".to_owned(),
            });
        }
        if let Some(why) = why {
            talk(&format!("{outcome}: {}", plain(&why)));
        }
        Ok(ExitCode::from(code))
    }
}

fn stuck() -> String {
    "the leader may be stuck, cut off or another program: `tenure status` shows its lease, `tenure \
     clear` ends it, with --force where nothing shows that it is gone"
        .to_owned()
}
