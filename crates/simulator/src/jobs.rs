//! Jobs in a world: their work begins, ends, is stopped or never starts, and each step is judged.

use std::time::Duration;

use tenure_core::protocol::{Outcome, Request, TickId};

use crate::algorithm::{JobReport, Op, Reply};
use crate::clock::MILLISECOND;
use crate::cluster::EPOCH;
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::promise::Promise;
use crate::runner::WorkEnd;
use crate::world::{Event, World, span};

/// In percent, how often a program cannot even be started.
const NOT_STARTED_PERCENT: u64 = 8;

impl World<'_> {
    /// The lengths of the periods in which jobs recur here. Where the store's clock is wrong there
    /// is only one: that is enough to see what becomes of its numbers.
    pub(crate) fn job_periods(&self) -> Vec<Duration> {
        let lease = self.climate.lease;
        match self.case.has(Fault::ClockCorrected) {
            true => vec![span(lease)],
            false => vec![span(lease), span(lease * 5)],
        }
    }

    /// A runner begins the work of a job.
    pub(crate) fn run_job(&mut self, party: usize, tick: Option<TickId>, reruns_crashed: bool) {
        let place = &mut self.parties[party];
        let (Some(belief), life) = (place.belief, place.life) else { return };
        if self.random.percent(NOT_STARTED_PERCENT) {
            self.note_party(party, || "the work of its job cannot be started");
            let ended = WorkEnd::NotStarted;
            return self.after(MILLISECOND, Event::Worked { party, life, ended });
        }
        self.note_party(party, || format!("work of its job begins: {tick:?}"));
        if let Some(tick) = tick {
            let wrong = self.judge.ticks.begins(&tick, belief.token, reruns_crashed);
            let wrong = wrong.or_else(|| self.runs_elsewhere(party, &tick));
            if let Some(what) = wrong {
                self.judge.broken(Promise::P7, self.now, what);
            }
            self.parties[party].work.tick = Some(tick);
        }
        let place = &mut self.parties[party];
        place.work.runs_under = Some(belief.token);
        place.work.believed_until = belief.until;
        place.work.was_lost = false;
        place.work.is_told_to_stop = false;
        let lasts = self.random.share(self.climate.lease, 5, 1_200);
        self.plan_work(party, lasts, false);
        let local = self.parties[party].local(self.now);
        self.parties[party].algorithm.work(local, true);
    }

    /// Somebody else who may act works on the same tick.
    fn runs_elsewhere(&self, party: usize, tick: &TickId) -> Option<String> {
        let other = (0..self.parties.len()).filter(|other| *other != party).find(|&other| {
            let place = &self.parties[other];
            place.may_act(self.now) && place.work.is_on(tick)
        })?;
        let name = self.parties[other].name;
        Some(format!("{tick:?} is begun while {name} is at it in a valid term"))
    }

    /// The application's part of the end of a job: did it end by itself, and in its term?
    pub(crate) fn work_of_job_ended(&mut self, party: usize) {
        let place = &mut self.parties[party];
        let (now, life) = (self.now, place.life);
        place.work.tick = None;
        let stops_at = place.timing.stop_at(place.work.believed_until);
        let is_in_time =
            place.local(now) < stops_at || self.subject.flaw() == Some(Flaw::DoneAfterLease);
        let place = &self.parties[party];
        let ended = match is_in_time && !place.work.is_told_to_stop {
            true => WorkEnd::Returned,
            false => WorkEnd::Stopped,
        };
        self.after(0, Event::Worked { party, life, ended });
    }

    pub(crate) fn worked(&mut self, party: usize, ended: WorkEnd) {
        let local = self.parties[party].local(self.now);
        self.note_party(party, || format!("its job has ended: {ended:?}"));
        self.parties[party].algorithm.worked(local, ended);
        self.settle(party);
    }

    pub(crate) fn reported(
        &mut self,
        party: usize,
        tick: &TickId,
        how: JobReport,
        reruns_crashed: bool,
    ) {
        self.note_party(party, || format!("reports {how:?} of {tick:?}"));
        // Drift, and clocks of replicas that are somewhat ahead.
        let ahead = self.climate.lease.saturating_add_signed(self.cluster.drawn_ahead_max);
        let micros = (EPOCH + self.now / 100 * 101 + ahead) / 1_000;
        let wrong = self.judge.ticks.reported(tick, how, (reruns_crashed, micros));
        if let Some(what) = wrong {
            self.judge.broken(Promise::P7, self.now, what);
        }
    }

    /// A store has taken down that a tick was begun, or how it ended.
    pub(crate) fn tick_written(&mut self, op: &Op, reply: &Reply) {
        if let (Op::Call(Request::TickBegin { tick, .. }), Reply::Answer(answer)) = (op, reply)
            && answer.outcome == Outcome::TickRuns
        {
            self.judge.ticks.is_opened(tick);
        }
        if let Some(tick) = finished_tick(op, reply) {
            self.judge.ticks.is_written(tick);
        }
    }

    /// So it counts.
    pub(crate) fn tick_recorded(&mut self, op: &Op, reply: &Reply) {
        if let Some(tick) = finished_tick(op, reply) {
            self.judge.ticks.is_recorded(tick);
        }
    }
}

fn finished_tick<'a>(op: &'a Op, reply: &Reply) -> Option<&'a TickId> {
    match (op, reply) {
        (Op::Call(Request::TickFinish { tick, .. }), Reply::Answer(answer))
            if answer.outcome == Outcome::Done =>
        {
            Some(tick)
        }
        _ => None,
    }
}
