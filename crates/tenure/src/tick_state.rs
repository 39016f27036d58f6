//! What is known of a tick, for those who take no part in its job.

use std::time::Duration;

use tenure_core::job_run::{JobRun, JobSettings, JobStep};
use tenure_core::protocol::{Outcome, Request, TickOutcome};
use tenure_core::{InstanceId, Token};

use crate::observe::unexpected;
use crate::{Error, Observer, Tick};

/// How often the period is determined again: the store's clock may be set back between two looks,
/// not again and again.
const LOOKS_MAX: usize = 4;

/// The state of a tick as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TickState {
    /// Nobody has begun it.
    Open,
    /// An instance has begun it and still holds the job.
    Running {
        /// The instance that runs it.
        by: InstanceId,
    },
    /// It has run, with this outcome.
    Done(TickOutcome),
    /// An instance began it, recorded no outcome, and does not hold the job any more.
    Unfinished {
        /// The instance that began it.
        by: InstanceId,
        /// The token of its term; `None` if the record has none.
        token: Option<Token>,
    },
}

impl Observer {
    /// Asks the store for the state of a tick of the job with this name, without taking part.
    pub async fn tick(&self, tick: &Tick) -> Result<TickState, Error> {
        tick.check()?;
        let mut run = JobRun::new(JobSettings {
            tick: Some(tick.0.clone()),
            rerun_crashed: true,
            keep: Duration::ZERO,
            waits: false,
            ttl: Duration::ZERO,
        });
        let mut step = run.look();
        for _ in 0..LOOKS_MAX {
            let JobStep::Ask { request, .. } = step else { break };
            let is_look = matches!(request, Request::TickLook { .. });
            let answer = self.ask(request).await?;
            let holder = answer.view.holder.clone();
            let outcome = answer.outcome.clone();
            step = run.handle_answer(answer, false);
            // A period that has not begun by the store's clock is determined again.
            if is_look && !matches!(step, JobStep::Ask { .. }) {
                return state(outcome, holder.as_ref());
            }
        }
        let why = "the store's clock jumps: the period cannot be told; ask again".to_owned();
        Err(Error::Refused { why })
    }
}

fn state(outcome: Outcome, holder: Option<&InstanceId>) -> Result<TickState, Error> {
    Ok(match outcome {
        Outcome::TickUnknown => TickState::Open,
        Outcome::TickDone(outcome) => TickState::Done(outcome),
        Outcome::TickUnfinished { by, .. } if holder == Some(&by) => TickState::Running { by },
        Outcome::TickUnfinished { by, token } => TickState::Unfinished { by, token },
        other => return Err(unexpected(&other, "look at a tick")),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{MemoryBackend, OnceOutcome, Tenure};

    #[tokio::test]
    async fn a_tick_is_open_then_running_then_done_or_unfinished() {
        let store = Arc::new(MemoryBackend::new());
        let client = |name: &str| {
            Tenure::builder().instance(name).backend(Arc::clone(&store) as _).fresh_store(true)
        };
        let (ada, eve) = (client("ada").connect().await, client("eve").connect().await);
        let (ada, eve) = (ada.unwrap(), eve.unwrap());
        let observer = eve.observe("report").unwrap();
        let (one, day) = (Tick::named("one"), Tick::every(Duration::from_secs(24 * 60 * 60)));
        for tick in [&one, &day] {
            assert_eq!(observer.tick(tick).await, Ok(TickState::Open));
        }
        let work = |_| async {
            let seen = observer.tick(&one).await;
            assert_eq!(seen, Ok(TickState::Running { by: ada.id().clone() }));
            Err::<(), _>("no rows")
        };
        let once = ada.once("report", one.clone(), work).await.unwrap();
        assert!(matches!(once, OnceOutcome::Ran(Err("no rows"))));
        let failed = TickOutcome::Failed("no rows".to_owned());
        assert_eq!(observer.tick(&one).await, Ok(TickState::Done(failed)));
        let ran = ada.once("report", day.clone(), |_| async { Ok::<_, String>(()) }).await;
        assert!(matches!(ran.unwrap(), OnceOutcome::Ran(Ok(()))));
        assert_eq!(observer.tick(&day).await, Ok(TickState::Done(TickOutcome::Succeeded)));

        let two = Tick::named("two");
        let (began, begun) = tokio::sync::oneshot::channel();
        let crash = ada.once("report", two.clone(), |_| async {
            began.send(()).unwrap();
            std::future::pending::<Result<(), String>>().await
        });
        tokio::select! {
            once = crash => panic!("{once:?}"),
            done = begun => done.unwrap(),
        }
        let left = async {
            while !matches!(observer.tick(&two).await, Ok(TickState::Unfinished { .. })) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(testkit::GENEROUS, left).await.expect("the job to be let go");
    }
}
