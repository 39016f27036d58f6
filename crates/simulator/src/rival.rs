//! The control algorithms S0 to S3: leader locks as they are found in the wild, with their
//! defaults. None has a deadline of its own, so the world must find two of them leading at once.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::{Moment, StoreError};

use crate::algorithm::{Algorithm, Belief, Op, Output, Reply, Want};

/// The lease that all of them ask for.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK: &str = "lock";
const HEARTBEAT: &str = "lock:heartbeat";
/// How long a process that was asked to stop goes on before it ends.
const LINGERS: Duration = Duration::from_secs(1);

/// Which control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RivalKind {
    /// GET, then SET NX or an unconditional EXPIRE; heartbeats by wall clock; errors keep the flag.
    S0,
    /// GET and compare locally, then EXPIRE; any error clears the flag.
    S1,
    /// Compare-and-expire in one script; stops by releasing while the loop still runs.
    S2,
    /// A lease that nothing renews; the flag stays until the next check.
    S3a,
    /// SETNX, then EXPIRE as a second call; an equal configured id counts as mine.
    S3b,
}

impl RivalKind {
    fn every(self) -> Duration {
        match self {
            RivalKind::S0 => Duration::from_secs(15),
            _ => Duration::from_secs(10),
        }
    }
}

/// One process that runs a control.
pub(crate) struct Rival {
    kind: RivalKind,
    id: String,
    leads: bool,
    step: Step,
    outputs: VecDeque<Output>,
    asked: u64,
    ticks_at: Moment,
    beats_at: Moment,
    ends_at: Option<Moment>,
    /// How far the wall clock is ahead of the local one that the world shows.
    wall_offset: Duration,
}

/// What the reply under way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Looks,
    Takes,
    Confirms,
    ReadsHeartbeat,
    Extends,
    Expires,
    LooksToStop,
    Releases,
    Beats,
}

impl Rival {
    /// A process called `id` whose first tick comes after `delay`.
    pub(crate) fn new(kind: RivalKind, id: String, now: Moment, delay: Duration) -> Self {
        let ticks_at = now + if kind == RivalKind::S0 { delay } else { Duration::ZERO };
        Rival {
            kind,
            id,
            leads: false,
            step: Step::Idle,
            outputs: VecDeque::new(),
            asked: 0,
            ticks_at,
            beats_at: ticks_at,
            ends_at: None,
            wall_offset: delay / 10,
        }
    }

    fn ask(&mut self, step: Step, op: Op) {
        self.step = step;
        self.asked += 1;
        self.outputs.push_back(Output::Ask { ask: self.asked, op, timeout: CALL_TIMEOUT });
    }

    fn tick(&mut self, now: Moment) {
        self.ticks_at = now + self.kind.every();
        match self.kind {
            RivalKind::S0 | RivalKind::S3b => self.ask(Step::Looks, Op::Get(LOCK.into())),
            RivalKind::S1 | RivalKind::S3a if self.leads => {
                self.ask(Step::Looks, Op::Get(LOCK.into()));
            }
            RivalKind::S2 if self.leads => {
                let op = Op::ExpireIfEqual { key: LOCK.into(), value: self.id.clone(), ttl: LEASE };
                self.ask(Step::Extends, op);
            }
            _ => self.take(Some(LEASE)),
        }
    }

    fn take(&mut self, ttl: Option<Duration>) {
        let (key, value) = (LOCK.into(), self.id.clone());
        self.ask(Step::Takes, Op::SetIfAbsent { key, value, ttl });
    }

    fn extend(&mut self) {
        self.ask(Step::Extends, Op::Expire { key: LOCK.into(), ttl: LEASE });
    }

    fn looked(&mut self, holder: Option<&str>) {
        let is_mine = holder == Some(self.id.as_str());
        match self.kind {
            RivalKind::S0 | RivalKind::S3b => {
                self.leads = is_mine;
                match (is_mine, holder) {
                    (true, _) => self.extend(),
                    (false, None) if self.kind == RivalKind::S3b => self.take(None),
                    (false, None) => self.take(Some(LEASE)),
                    (false, Some(_)) if self.kind == RivalKind::S0 => {
                        self.ask(Step::ReadsHeartbeat, Op::Get(HEARTBEAT.into()));
                    }
                    (false, Some(_)) => {}
                }
            }
            _ if !is_mine => self.leads = false,
            RivalKind::S1 => self.extend(),
            _ => {}
        }
    }

    fn took(&mut self, done: bool) {
        match self.kind {
            RivalKind::S0 => self.ask(Step::Confirms, Op::Get(LOCK.into())),
            RivalKind::S3b if done => {
                self.leads = true;
                self.ask(Step::Expires, Op::Expire { key: LOCK.into(), ttl: LEASE });
            }
            _ => self.leads = done,
        }
    }

    fn read_heartbeat(&mut self, now: Moment, beaten_at: Option<u64>) {
        let stale_after = LEASE + Duration::from_secs(5);
        let wall = self.wall(now);
        let age = beaten_at.map(|at| Duration::from_nanos(wall.saturating_sub(at)));
        if age.is_none_or(|age| age > stale_after) {
            self.take(Some(LEASE));
        }
    }

    fn wall(&self, now: Moment) -> u64 {
        (now + self.wall_offset).as_nanos()
    }

    fn fail(&mut self) {
        let keeps_the_flag = matches!(self.kind, RivalKind::S0 | RivalKind::S3b | RivalKind::S3a);
        self.leads &= keeps_the_flag;
    }

    fn stop(&mut self, now: Moment) {
        self.ends_at = Some(now + LINGERS);
        // All but S2 end their loop before they release.
        if self.kind != RivalKind::S2 {
            (self.ticks_at, self.beats_at) = (Moment::NEVER, Moment::NEVER);
        }
        if !self.leads {
            return;
        }
        if self.kind == RivalKind::S0 {
            return self.ask(Step::LooksToStop, Op::Get(LOCK.into()));
        }
        let op = Op::DeleteIfEqual { key: LOCK.into(), value: self.id.clone() };
        self.ask(Step::Releases, op);
    }
}

impl Algorithm for Rival {
    fn start(&mut self, _now: Moment) {}

    fn reply(&mut self, now: Moment, ask: u64, reply: Result<Reply, StoreError>) {
        if ask != self.asked {
            return;
        }
        let step = std::mem::replace(&mut self.step, Step::Idle);
        match (step, reply) {
            (Step::Beats, _) => {}
            (_, Err(_)) => self.fail(),
            (Step::Looks, Ok(Reply::Value(holder))) => self.looked(holder.as_deref()),
            (Step::Takes, Ok(Reply::Done(done))) => self.took(done),
            (Step::Confirms, Ok(Reply::Value(holder))) => {
                self.leads = holder.as_deref() == Some(self.id.as_str());
            }
            (Step::ReadsHeartbeat, Ok(Reply::Value(beaten_at))) => {
                self.read_heartbeat(now, beaten_at.and_then(|at| at.parse().ok()));
            }
            (Step::Extends, Ok(Reply::Done(done))) if self.kind == RivalKind::S2 => {
                self.leads = done;
            }
            (Step::LooksToStop, Ok(Reply::Value(holder)))
                if holder.as_deref() == Some(self.id.as_str()) =>
            {
                self.ask(Step::Releases, Op::Delete(LOCK.into()));
            }
            (Step::Releases, Ok(_)) => self.leads = false,
            _ => {}
        }
    }

    fn wake(&mut self, now: Moment) {
        if self.is_over() {
            return;
        }
        if self.ends_at.is_some_and(|ends_at| now >= ends_at) {
            self.leads = false;
            self.ticks_at = Moment::NEVER;
            self.ends_at = Some(Moment::ORIGIN);
            return;
        }
        if self.step != Step::Idle {
            return;
        }
        if now >= self.ticks_at {
            self.tick(now);
        } else if self.kind == RivalKind::S0 && self.leads && now >= self.beats_at {
            self.beats_at = now + Duration::from_secs(10);
            let value = self.wall(now).to_string();
            self.ask(Step::Beats, Op::Set { key: HEARTBEAT.into(), value });
        }
    }

    fn want(&mut self, now: Moment, want: Want) {
        if matches!(want, Want::Stop) && self.ends_at.is_none() {
            self.stop(now);
        }
    }

    fn poll_output(&mut self) -> Output {
        self.outputs.pop_front().unwrap_or_else(|| {
            let mut wakes_at = self.ends_at.unwrap_or(Moment::NEVER);
            if self.step == Step::Idle && !self.is_over() {
                wakes_at = wakes_at.min(self.ticks_at);
                if self.kind == RivalKind::S0 && self.leads {
                    wakes_at = wakes_at.min(self.beats_at);
                }
            }
            Output::WaitUntil(if self.is_over() { Moment::NEVER } else { wakes_at })
        })
    }

    fn belief(&self) -> Option<Belief> {
        self.leads.then_some(Belief { token: None, until: Moment::NEVER })
    }

    fn is_over(&self) -> bool {
        self.ends_at == Some(Moment::ORIGIN)
    }
}
