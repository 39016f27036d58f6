//! Scripts that operators want run: a bounded queue, few at once, retries of those that failed.

use std::collections::VecDeque;
use std::time::Duration;

use store_replica::Moment;

use crate::settings::Timing;

/// Scripts that wait or run; beyond that the oldest that waits is forgotten.
const QUEUE_MAX: usize = 256;
/// Scripts that run at once.
const RUNNING_MAX: usize = 16;
/// Times that a script which failed is tried again.
const RETRIES_MAX: u32 = 10;

/// Names one run of a script. A number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScriptId(pub u64);

/// How a script ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It could not be started.
    NotStarted,
}

/// ```text
/// Waiting ─► Running ─ exit 0, or 2 and more ─► gone
///    ▲          └ exit 1, or a signal: again, after a rest that doubles ┐
///    └──────────────────────────────────────────────────────────────────┘
/// ```
#[derive(Clone, Debug)]
enum State {
    Waiting { until: Moment },
    Running { id: ScriptId, since: Moment, is_killed: bool, pid: u32 },
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) words: Vec<String>,
    /// Times that it was started.
    pub(crate) tries: u32,
    state: State,
}

impl Job {
    /// Its process, and for how long it has run; `None` while it waits.
    pub(crate) fn running(&self, now: Moment) -> Option<(u32, Duration)> {
        match self.state {
            State::Running { since, pid, .. } => Some((pid, now.since(since))),
            State::Waiting { .. } => None,
        }
    }

    /// How long it has yet to wait.
    pub(crate) fn rest(&self, now: Moment) -> Duration {
        match self.state {
            State::Waiting { until } => until.since(now),
            State::Running { .. } => Duration::ZERO,
        }
    }

    fn is(&self, which: ScriptId) -> bool {
        matches!(self.state, State::Running { id, .. } if id == which)
    }
}

/// What is to be done with a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScriptAct {
    Start(ScriptId, Vec<String>),
    /// It runs for too long: its words, and for how long.
    Kill(ScriptId, Vec<String>, Duration),
}

#[derive(Debug, Default)]
pub(crate) struct Scripts {
    jobs: VecDeque<Job>,
    started: u64,
}

impl Scripts {
    pub(crate) fn add(&mut self, now: Moment, words: Vec<String>) {
        if self.jobs.len() >= QUEUE_MAX {
            let oldest = self.jobs.iter().position(|job| job.running(now).is_none());
            oldest.map(|at| self.jobs.remove(at));
        }
        self.jobs.push_back(Job { words, tries: 0, state: State::Waiting { until: now } });
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter()
    }

    /// Starts who may run now, and ends who runs for too long.
    pub(crate) fn handle_time(&mut self, now: Moment, timing: &Timing) -> Vec<ScriptAct> {
        let mut acts = Vec::new();
        let mut running = self.jobs.iter().filter(|job| job.running(now).is_some()).count();
        for job in &mut self.jobs {
            match &mut job.state {
                State::Waiting { until } if *until <= now && running < RUNNING_MAX => {
                    self.started += 1;
                    running += 1;
                    let id = ScriptId(self.started);
                    job.state = State::Running { id, since: now, is_killed: false, pid: 0 };
                    job.tries += 1;
                    acts.push(ScriptAct::Start(id, job.words.clone()));
                }
                State::Running { id, since, is_killed: is_killed @ false, .. }
                    if now.since(*since) > timing.script_max =>
                {
                    *is_killed = true;
                    acts.push(ScriptAct::Kill(*id, job.words.clone(), now.since(*since)));
                }
                _ => {}
            }
        }
        acts
    }

    pub(crate) fn started(&mut self, which: ScriptId, process: u32) {
        let job = self.jobs.iter_mut().find(|job| job.is(which));
        if let Some(State::Running { pid, .. }) = job.map(|job| &mut job.state) {
            *pid = process;
        }
    }

    /// A script ended. Its path, unless it did what it should or is tried again.
    pub(crate) fn ended(
        &mut self,
        now: Moment,
        timing: &Timing,
        which: ScriptId,
        end: ScriptEnd,
    ) -> Option<String> {
        let at = self.jobs.iter().position(|job| job.is(which))?;
        let job = &mut self.jobs[at];
        let is_retried = matches!(end, ScriptEnd::Exited(1) | ScriptEnd::Killed(_));
        if is_retried && job.tries <= RETRIES_MAX {
            let rest = timing.script_retry * (1 << (job.tries - 1));
            job.state = State::Waiting { until: now + rest };
            return None;
        }
        let job = self.jobs.remove(at)?;
        (end != ScriptEnd::Exited(0)).then(|| job.words.into_iter().next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(acts: &[ScriptAct]) -> Vec<ScriptId> {
        let start = |act: &ScriptAct| match act {
            ScriptAct::Start(id, _) => Some(*id),
            ScriptAct::Kill(..) => None,
        };
        acts.iter().filter_map(start).collect()
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_ms(seconds * 1_000)
    }

    #[test]
    fn at_most_sixteen_run_at_once_and_the_queue_is_bounded() {
        let (mut scripts, timing) = (Scripts::default(), Timing::default());
        for number in 0..300 {
            scripts.add(at(0), vec![format!("script{number}")]);
        }
        assert_eq!(scripts.jobs().count(), QUEUE_MAX);
        let ids = started(&scripts.handle_time(at(0), &timing));
        assert_eq!(ids.len(), RUNNING_MAX);
        assert!(scripts.handle_time(at(1), &timing).is_empty());
        assert_eq!(scripts.ended(at(1), &timing, ids[0], ScriptEnd::Exited(0)), None);
        assert_eq!(started(&scripts.handle_time(at(1), &timing)).len(), 1);
    }

    #[test]
    fn a_script_that_hangs_is_killed_and_tried_again_with_growing_rests() {
        let (mut scripts, timing) = (Scripts::default(), Timing::default());
        scripts.add(at(0), vec!["hangs".to_owned()]);
        let (mut now, mut rests) = (0, Vec::new());
        loop {
            let id = started(&scripts.handle_time(at(now), &timing))[0];
            now += 61;
            let acts = scripts.handle_time(at(now), &timing);
            assert!(matches!(acts[..], [ScriptAct::Kill(..)]));
            assert!(scripts.handle_time(at(now), &timing).is_empty(), "it is killed once");
            if let Some(path) = scripts.ended(at(now), &timing, id, ScriptEnd::Killed(9)) {
                assert_eq!(path, "hangs");
                break;
            }
            let rest = scripts.jobs().next().unwrap().rest(at(now)).as_secs();
            rests.push(rest);
            now += rest;
        }
        assert_eq!(rests.len(), RETRIES_MAX as usize);
        assert_eq!(rests[..3], [30, 60, 120]);
        assert_eq!(scripts.jobs().count(), 0);
    }

    #[test]
    fn a_script_that_says_two_is_not_tried_again() {
        let (mut scripts, timing) = (Scripts::default(), Timing::default());
        scripts.add(at(0), vec!["refuses".to_owned()]);
        let id = started(&scripts.handle_time(at(0), &timing))[0];
        let path = scripts.ended(at(1), &timing, id, ScriptEnd::Exited(2));
        assert_eq!(path.as_deref(), Some("refuses"));
    }
}
