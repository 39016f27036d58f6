//! One run of a job: which requests are made in which order, and what each answer means.
//!
//! A state machine that never waits: the caller asks, leads and works, and reports the results.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{Answer, LostWhy, Outcome, Request, TickId, TickOutcome, View};
use crate::{InstanceId, ServerTime, Token};

/// The pause before a request that was not answered is repeated.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The settings of one run of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// The tick; without one, the job runs whenever the leadership is free.
    pub tick: Option<JobTick>,
    /// Whether a tick that was begun and has no outcome is run again.
    pub rerun_crashed: bool,
    /// How long the outcome of a named tick is kept.
    pub keep: Duration,
    /// Whether the outcome is waited for: temporary errors do not end the run.
    pub waits: bool,
    /// The ttl to ask for.
    pub ttl: Duration,
}

/// A tick that is known, or that the store's clock decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobTick {
    /// This tick.
    Known(TickId),
    /// The current period of this length; not zero.
    Every(Duration),
    /// The latest of these times that has come.
    Due(DueTimes),
}

/// The length of a "period" that stands for due times: the number is the time itself, in
/// microseconds. Periods that people choose are longer, so the two never share a count.
const DUE_UNIT: Duration = Duration::from_micros(1);

/// The times at which a job is due, as a function: the latest that is not after the one given.
#[derive(Clone)]
pub struct DueTimes(Arc<dyn Fn(ServerTime) -> ServerTime + Send + Sync>);

impl DueTimes {
    /// The due times of which `latest` tells the latest one up to a time.
    pub fn new(latest: impl Fn(ServerTime) -> ServerTime + Send + Sync + 'static) -> Self {
        DueTimes(Arc::new(latest))
    }
}

impl fmt::Debug for DueTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DueTimes")
    }
}

impl PartialEq for DueTimes {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for DueTimes {}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum JobStep {
    /// Ask the store, after a pause.
    Ask {
        /// The request.
        request: Request,
        /// How long to wait before it.
        after: Duration,
    },
    /// Try to lead, once.
    Lead,
    /// Wait until something may have changed, and look again. Step down first, if leading.
    Wait,
    /// Begin the work, under the term that was granted.
    Work,
    /// Step down: the run is over with this result.
    End(JobEnd),
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum JobEnd {
    /// The work returned.
    Ran {
        /// Whether the store has recorded the outcome, if there is a tick.
        is_recorded: bool,
    },
    /// The tick has already run, with this outcome.
    AlreadyDone(TickOutcome),
    /// An instance began the tick and never recorded an outcome.
    Unfinished {
        /// The instance that began it.
        by: InstanceId,
        /// The token of its term; `None` if the record has none.
        token: Option<Token>,
    },
    /// The work was never started.
    NotStarted {
        /// Whether the store knows that the tick is open again.
        is_reopened: bool,
    },
    /// The work had to stop.
    Stopped,
    /// Another instance leads, or nobody may lead at the moment.
    Denied,
    /// The term ended before the work began; with the reason, if the store gave one.
    LostBefore(Option<LostWhy>),
    /// The store did not answer, or answered something else, before the work began.
    Unanswered(Option<Outcome>),
}

/// How the work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkEnd {
    /// By itself, inside its term.
    Returned(TickOutcome),
    /// Because it had to.
    Stopped,
    /// It could not even begin, or was never begun.
    NotStarted,
}

/// One run of a job.
#[derive(Clone, Debug)]
pub struct JobRun {
    settings: JobSettings,
    /// Fixed once the store's clock has been asked, where it must be.
    tick: Option<TickId>,
    /// Of the term that it runs under.
    token: Option<Token>,
    asked: Option<Request>,
}

impl JobRun {
    /// A run that has not begun.
    pub fn new(settings: JobSettings) -> Self {
        let tick = match &settings.tick {
            Some(JobTick::Known(tick)) => Some(tick.clone()),
            _ => None,
        };
        JobRun { settings, tick, token: None, asked: None }
    }

    /// The tick, once it is known.
    pub fn tick(&self) -> Option<&TickId> {
        self.tick.as_ref()
    }

    /// Asks for the state of the tick, for the first time or again, before anybody leads.
    pub fn look(&mut self) -> JobStep {
        match (&self.settings.tick, self.tick.clone()) {
            (_, Some(tick)) => self.ask(Request::TickLook { tick }),
            (Some(JobTick::Every(_) | JobTick::Due(_)), None) => {
                self.ask(Request::Observe { members: false })
            }
            _ => JobStep::Lead,
        }
    }

    /// The attempt to lead was refused.
    pub fn handle_denied(&mut self) -> JobStep {
        match self.settings.waits {
            true => JobStep::Wait,
            false => JobStep::End(JobEnd::Denied),
        }
    }

    /// The attempt to lead was not answered. `may_answer` says that another one might be.
    pub fn handle_untried(&mut self, may_answer: bool) -> JobStep {
        match self.settings.waits && may_answer {
            true => JobStep::Wait,
            false => JobStep::End(JobEnd::Unanswered(None)),
        }
    }

    /// A term was granted.
    pub fn handle_granted(&mut self, token: Token) -> JobStep {
        self.token = Some(token);
        let rerun_crashed = self.settings.rerun_crashed;
        match self.tick.clone() {
            Some(tick) => self.ask(Request::TickBegin { token, tick, rerun_crashed }),
            None => JobStep::Work,
        }
    }

    /// The store answered. `leads` says whether the term, if there is one, still runs.
    pub fn handle_answer(&mut self, answer: Answer, leads: bool) -> JobStep {
        let Some(request) = self.asked.take() else { return JobStep::End(JobEnd::Stopped) };
        match (request, answer.outcome) {
            (Request::Observe { .. }, _) => {
                self.tick = self.period_at(answer.view.server_time);
                self.look()
            }
            (Request::TickLook { .. }, Outcome::TickDone(outcome)) => {
                JobStep::End(JobEnd::AlreadyDone(outcome))
            }
            // The clock that told the period was ahead, and has been set right meanwhile. The store
            // may have forgotten what became of periods that have not come.
            (Request::TickLook { .. }, _) if self.is_to_come(answer.view.server_time) => {
                self.tick = self.period_at(answer.view.server_time);
                self.look()
            }
            // Trying would only disturb whoever is at it.
            (Request::TickLook { .. }, _) if self.settings.waits && self.is_held(&answer.view) => {
                JobStep::Wait
            }
            (Request::TickLook { .. }, _) => JobStep::Lead,
            (Request::TickBegin { .. }, outcome) => self.begun(outcome, leads),
            (Request::TickReopen { .. }, outcome) => {
                let is_reopened = outcome == Outcome::Done;
                JobStep::End(JobEnd::NotStarted { is_reopened })
            }
            // The store has it, though the term may be over by now.
            (_, outcome) => JobStep::End(JobEnd::Ran { is_recorded: outcome == Outcome::Done }),
        }
    }

    /// The store did not answer. `may_answer` says that it might if it is asked again.
    pub fn handle_unanswered(&mut self, may_answer: bool, leads: bool) -> JobStep {
        let Some(request) = self.asked.take() else { return JobStep::End(JobEnd::Stopped) };
        // All requests about a tick may be repeated by the term that made them.
        let needs_term = !matches!(request, Request::Observe { .. } | Request::TickLook { .. });
        if needs_term && may_answer && leads {
            self.asked = Some(request.clone());
            return JobStep::Ask { request, after: ASK_AGAIN };
        }
        if !needs_term {
            return self.handle_untried(may_answer);
        }
        JobStep::End(match request {
            Request::TickBegin { .. } if !leads => JobEnd::LostBefore(None),
            Request::TickFinish { .. } => JobEnd::Ran { is_recorded: false },
            Request::TickReopen { .. } => JobEnd::NotStarted { is_reopened: false },
            _ => JobEnd::Unanswered(None),
        })
    }

    /// The term ended while an answer was awaited.
    pub fn handle_lost(&mut self) -> JobStep {
        self.handle_unanswered(false, false)
    }

    /// The work ended.
    pub fn handle_worked(&mut self, ended: WorkEnd) -> JobStep {
        let token = self.token.expect("work runs under a term");
        let keep = self.settings.keep;
        match (ended, self.tick.clone()) {
            (WorkEnd::Stopped, _) => JobStep::End(JobEnd::Stopped),
            (WorkEnd::Returned(outcome), Some(tick)) => {
                self.ask(Request::TickFinish { token, tick, outcome, keep })
            }
            (WorkEnd::Returned(_), None) => JobStep::End(JobEnd::Ran { is_recorded: true }),
            (WorkEnd::NotStarted, Some(tick)) => self.ask(Request::TickReopen { token, tick }),
            (WorkEnd::NotStarted, None) => JobStep::End(JobEnd::NotStarted { is_reopened: true }),
        }
    }

    fn begun(&self, outcome: Outcome, leads: bool) -> JobStep {
        match outcome {
            Outcome::TickDone(outcome) => JobStep::End(JobEnd::AlreadyDone(outcome)),
            Outcome::TickUnfinished { by, token } => JobStep::End(JobEnd::Unfinished { by, token }),
            Outcome::TickRuns if leads => JobStep::Work,
            Outcome::TickRuns => JobStep::End(JobEnd::LostBefore(None)),
            Outcome::Lost(why) => JobStep::End(JobEnd::LostBefore(Some(why))),
            other => JobStep::End(JobEnd::Unanswered(Some(other))),
        }
    }

    fn ask(&mut self, request: Request) -> JobStep {
        self.asked = Some(request.clone());
        JobStep::Ask { request, after: Duration::ZERO }
    }

    /// Whether somebody holds the resource. A key that lasts for longer than a lease may have been
    /// left behind when the store's clock stepped back: only a try finds out.
    fn is_held(&self, view: &View) -> bool {
        view.holder.is_some() && view.pttl.is_some_and(|left| left <= self.settings.ttl)
    }

    /// Whether the tick is a period that has not begun, by this reading of the store's clock.
    fn is_to_come(&self, time: ServerTime) -> bool {
        match (&self.tick, self.period_at(time)) {
            (Some(TickId::Period { number, .. }), Some(TickId::Period { number: now, .. })) => {
                *number > now
            }
            _ => false,
        }
    }

    /// The period at a reading of the store's clock.
    fn period_at(&self, time: ServerTime) -> Option<TickId> {
        let period = match &self.settings.tick {
            Some(JobTick::Every(period)) => period,
            Some(JobTick::Due(times)) => {
                return Some(TickId::Period { number: times.0(time).0, period: DUE_UNIT });
            }
            _ => return None,
        };
        let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1);
        let period = Duration::from_micros(micros);
        Some(TickId::Period { number: time.0 / micros, period })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn run(tick: Option<JobTick>) -> JobRun {
        JobRun::new(JobSettings {
            tick,
            rerun_crashed: true,
            keep: SECOND,
            waits: false,
            ttl: SECOND,
        })
    }

    fn waiting() -> JobRun {
        let tick = Some(JobTick::Known(TickId::Named("step".into())));
        JobRun::new(JobSettings {
            tick,
            rerun_crashed: true,
            keep: SECOND,
            waits: true,
            ttl: SECOND,
        })
    }

    fn named() -> JobRun {
        run(Some(JobTick::Known(TickId::Named("step".into()))))
    }

    fn answer(outcome: Outcome) -> Answer {
        let view = View { server_time: ServerTime(7_500_000), ..View::default() };
        Answer { outcome, view, warnings: Vec::new() }
    }

    fn token() -> Token {
        Token::new(5).unwrap()
    }

    /// A run whose work is under way.
    fn working() -> JobRun {
        let mut run = named();
        run.handle_granted(token());
        assert_eq!(run.handle_answer(answer(Outcome::TickRuns), true), JobStep::Work);
        run
    }

    #[test]
    fn a_period_is_told_by_the_clock_of_the_store_and_stays() {
        let mut run = run(Some(JobTick::Every(2 * SECOND)));
        assert!(matches!(run.look(), JobStep::Ask { request: Request::Observe { .. }, .. }));
        let tick = TickId::Period { number: 3, period: 2 * SECOND };
        let look = Request::TickLook { tick: tick.clone() };
        let step = JobStep::Ask { request: look, after: Duration::ZERO };
        assert_eq!(run.handle_answer(answer(Outcome::Done), false), step);
        assert_eq!(run.look(), step);
        assert_eq!(run.tick(), Some(&tick));
    }

    #[test]
    fn a_due_time_is_its_own_number_and_a_corrected_clock_takes_it_back() {
        let hourly = DueTimes::new(|time| ServerTime(time.0 - time.0 % 3_000_000));
        let mut run = run(Some(JobTick::Due(hourly)));
        run.look();
        let mut ahead = answer(Outcome::Done);
        ahead.view.server_time = ServerTime(900_500_000);
        run.handle_answer(ahead, false);
        let due = |number| TickId::Period { number, period: DUE_UNIT };
        assert_eq!(run.tick(), Some(&due(900_000_000)));
        run.handle_answer(answer(Outcome::TickUnknown), false);
        assert_eq!(run.tick(), Some(&due(6_000_000)));
        assert_eq!(run.handle_answer(answer(Outcome::TickUnknown), false), JobStep::Lead);
    }

    #[test]
    fn a_period_that_a_corrected_clock_takes_back_is_not_run() {
        let mut run = run(Some(JobTick::Every(2 * SECOND)));
        run.look();
        let mut ahead = answer(Outcome::Done);
        ahead.view.server_time = ServerTime(900_500_000);
        run.handle_answer(ahead, false);
        // Whoever waited in between looks again, and the clock shows 7.5 s.
        let tick = TickId::Period { number: 3, period: 2 * SECOND };
        let step = JobStep::Ask { request: Request::TickLook { tick }, after: Duration::ZERO };
        assert_eq!(run.handle_answer(answer(Outcome::TickUnknown), false), step);
        assert_eq!(run.handle_answer(answer(Outcome::TickUnknown), false), JobStep::Lead);
    }

    #[test]
    fn without_a_tick_only_the_term_counts() {
        let mut run = run(None);
        assert_eq!(run.look(), JobStep::Lead);
        assert_eq!(run.handle_granted(token()), JobStep::Work);
        let returned = run.handle_worked(WorkEnd::Returned(TickOutcome::Succeeded));
        assert_eq!(returned, JobStep::End(JobEnd::Ran { is_recorded: true }));
    }

    #[test]
    fn whoever_waits_waits_for_what_may_pass() {
        let mut run = waiting();
        run.look();
        assert_eq!(run.handle_unanswered(true, false), JobStep::Wait, "the store may come back");
        run.look();
        let held_for = |pttl| {
            let view = View { holder: Some(InstanceId::seen("ada")), pttl, ..View::default() };
            Answer { outcome: Outcome::TickUnknown, view, warnings: Vec::new() }
        };
        let looked = run.handle_answer(held_for(Some(SECOND)), false);
        assert_eq!(looked, JobStep::Wait, "somebody is at it");
        for left_behind in [Some(SECOND * 40), None] {
            run.look();
            let looked = run.handle_answer(held_for(left_behind), false);
            assert_eq!(looked, JobStep::Lead, "only a try shortens it");
        }
        assert_eq!(run.handle_denied(), JobStep::Wait);
        assert_eq!(run.handle_untried(true), JobStep::Wait);

        let unanswered = JobStep::End(JobEnd::Unanswered(None));
        assert_eq!(run.handle_untried(false), unanswered, "a person has to act");
        run.look();
        assert_eq!(run.handle_unanswered(false, false), unanswered);
    }

    #[test]
    fn whoever_does_not_wait_hears_at_once_that_it_is_not_its_turn() {
        let mut run = named();
        run.look();
        let unanswered = JobStep::End(JobEnd::Unanswered(None));
        assert_eq!(run.handle_unanswered(true, false), unanswered);
        assert_eq!(run.handle_untried(true), unanswered);
        assert_eq!(run.handle_denied(), JobStep::End(JobEnd::Denied));
    }

    #[test]
    fn no_work_begins_after_its_term() {
        let mut run = named();
        run.handle_granted(token());
        let late = run.handle_answer(answer(Outcome::TickRuns), false);
        assert_eq!(late, JobStep::End(JobEnd::LostBefore(None)));

        run.handle_granted(token());
        assert_eq!(run.handle_lost(), JobStep::End(JobEnd::LostBefore(None)));
    }

    #[test]
    fn what_is_not_answered_is_asked_again_while_the_term_lasts() {
        let mut run = working();
        run.handle_worked(WorkEnd::Returned(TickOutcome::Succeeded));
        assert!(matches!(
            run.handle_unanswered(true, true),
            JobStep::Ask { request: Request::TickFinish { .. }, after: ASK_AGAIN }
        ));
        let unrecorded = JobStep::End(JobEnd::Ran { is_recorded: false });
        assert_eq!(run.handle_unanswered(true, false), unrecorded);

        run.handle_worked(WorkEnd::Returned(TickOutcome::Succeeded));
        assert_eq!(run.handle_unanswered(false, true), unrecorded, "it never will be");
    }

    #[test]
    fn an_outcome_that_the_store_has_is_recorded_however_late_it_says_so() {
        let mut run = working();
        run.handle_worked(WorkEnd::Returned(TickOutcome::Succeeded));
        let recorded = run.handle_answer(answer(Outcome::Done), false);
        assert_eq!(recorded, JobStep::End(JobEnd::Ran { is_recorded: true }));
    }

    #[test]
    fn work_that_never_started_opens_its_tick_again() {
        let mut run = working();
        let asked = run.handle_worked(WorkEnd::NotStarted);
        assert!(matches!(asked, JobStep::Ask { request: Request::TickReopen { .. }, .. }));
        let told = run.handle_answer(answer(Outcome::Done), true);
        assert_eq!(told, JobStep::End(JobEnd::NotStarted { is_reopened: true }));
    }

    #[test]
    fn an_answer_to_nothing_ends_the_run() {
        assert_eq!(named().handle_answer(answer(Outcome::TickRuns), true), STOPPED);
        assert_eq!(named().handle_lost(), STOPPED);
    }

    const STOPPED: JobStep = JobStep::End(JobEnd::Stopped);
}
