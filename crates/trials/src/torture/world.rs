//! A store, the instances that use it, and the network between them.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::Moment;
use testkit::{Random, WallClock};

use super::fleet::Fleet;
use super::history::{NEMESIS, What};
use super::net::{Net, Way};
use super::row::{Mode, Topology};
use super::store::{Store, WHOLE_AGAIN_MAX};
use crate::clock;

/// How many instances contend. One more place is for newcomers.
pub(super) const INSTANCES: usize = 3;
/// How often the instances are listened to.
const LISTEN_EVERY: Duration = Duration::from_millis(20);
/// Looking at every server costs a process each.
const LOOK_WHETHER_WHOLE_EVERY: Duration = Duration::from_millis(300);
/// How far a wall clock jumps, in seconds: further than any lease lasts.
const CLOCK_STEP: i64 = 3_600;
/// How often the leader is struck rather than any other: it is the one that matters.
const LEADER_IN_FOUR: u64 = 3;

pub(super) struct World {
    pub(super) topology: Topology,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) store: Box<dyn Store>,
    pub(super) fleet: Fleet,
    pub(super) net: Net,
    /// One for all servers, or one each where they are independent; none where clocks cannot be
    /// moved.
    pub(super) clocks: Vec<Clock>,
    pub(super) random: Random,
    pub(super) wounds: ActiveFaults,
    /// When another was last promoted.
    pub(super) promoted_at: Option<Moment>,
}

/// A wall clock, and how far it is ahead, in seconds.
pub(super) struct Clock {
    pub(super) wall: WallClock,
    pub(super) ahead: i64,
}

/// What must be undone.
#[derive(Default)]
pub(super) struct ActiveFaults {
    dead: BTreeSet<usize>,
    paused: BTreeSet<usize>,
    watcher_paused: bool,
    /// Nobody is replaced for being silent.
    is_patient: bool,
}

impl World {
    /// The places of instances, the newcomer's included.
    pub(super) fn places(&self) -> usize {
        INSTANCES + 1
    }

    /// Longer than any lease that may still be believed in.
    pub(super) fn quarantine(&self) -> Duration {
        self.fleet.longest_lease().mul_f64(1.01) + Duration::from_millis(2)
    }

    /// Whom to strike: mostly the leader.
    pub(super) fn victim(&mut self) -> usize {
        let anyone = self.random.in_range(0..INSTANCES as u64) as usize;
        let hits_leader = self.random.in_range(0..4) < LEADER_IN_FOUR;
        match self.fleet.leader().filter(|leader| hits_leader && *leader < INSTANCES) {
            Some(leader) => leader,
            None => anyone,
        }
    }

    /// Lets some time pass: so many leases, drawn between the two.
    pub(super) fn endure(&mut self, least: f64, most: f64) {
        let drawn = self.random.in_range(0..1_000) as f64 / 1_000.0;
        self.sleep(self.ttl.mul_f64(least + (most - least) * drawn));
    }

    /// Lets time pass, and listens.
    pub(super) fn sleep(&mut self, time: Duration) {
        let until = clock::now() + time;
        while clock::now() < until {
            self.fleet.drain();
            std::thread::sleep(LISTEN_EVERY.min(clock::now().until(until)));
        }
    }

    pub(super) fn cut_place(&mut self, place: usize, way: Way) {
        for node in 0..self.topology.nodes() {
            self.net.part_place(place, node, way);
        }
    }

    /// Whoever has just got or kept a term, so that most of its lease is left.
    pub(super) fn fresh_leader(&mut self) -> Option<usize> {
        let looked_at = clock::now();
        self.await_proof(looked_at, self.ttl * 4);
        self.fleet.leader()
    }

    /// Cuts the leader off right after it has renewed.
    pub(super) fn cut_leader_off(&mut self) {
        if let Some(leader) = self.fresh_leader() {
            self.cut_place(leader, Way::Both);
        }
    }

    /// Starts an instance that has never seen a token.
    pub(super) fn welcome_newcomer(&mut self) {
        self.fleet.start(INSTANCES);
        self.sleep(self.ttl);
    }

    /// Sets a clock back.
    pub(super) fn step_clock_back(&mut self, index: usize) {
        let clock = &mut self.clocks[index];
        clock.ahead -= CLOCK_STEP;
        clock.wall.move_by(clock.ahead);
    }

    /// Moves a clock ahead.
    pub(super) fn step_clock(&mut self, index: usize) {
        let clock = &mut self.clocks[index];
        clock.ahead += CLOCK_STEP;
        clock.wall.move_by(clock.ahead);
    }

    /// Where nodes are independent, lets one that has forgotten become of use again: only then may
    /// another be struck.
    pub(super) fn settle(&mut self) {
        if self.topology.is_quorum() {
            self.sleep(self.quarantine() + self.ttl);
        }
    }

    pub(super) fn pause_node(&mut self, node: usize) {
        self.store.pause(node);
        self.wounds.paused.insert(node);
    }

    pub(super) fn kill_node(&mut self, node: usize) {
        self.store.kill(node);
        self.wounds.dead.insert(node);
    }

    pub(super) fn pause_watcher(&mut self) {
        self.store.set_watcher_paused(true);
        self.wounds.watcher_paused = true;
    }

    pub(super) fn set_patient(&mut self, is_patient: bool) {
        self.store.set_patient(is_patient);
        self.wounds.is_patient = is_patient;
    }

    /// Starts a server that was told to end.
    pub(super) fn rejoin(&mut self, node: usize) {
        self.store.rejoin(node);
    }

    pub(super) fn rejoin_dead(&mut self) {
        for node in std::mem::take(&mut self.wounds.dead) {
            self.store.rejoin(node);
        }
    }

    /// Waits until another than `old` is master, and notes when.
    pub(super) fn await_promotion(&mut self, old: usize) {
        if self.store.wait_for_promotion(old) {
            self.fleet.note(What::Promoted);
            self.promoted_at = Some(clock::now());
        }
    }

    /// Undoes all faults, waits until the store is whole again and stays so, and returns since when
    /// it has been.
    pub(super) fn heal(&mut self) -> Moment {
        self.net.heal();
        for node in std::mem::take(&mut self.wounds.paused) {
            self.store.resume(node);
        }
        if std::mem::take(&mut self.wounds.watcher_paused) {
            self.store.set_watcher_paused(false);
        }
        self.rejoin_dead();
        self.fleet.heal(INSTANCES);
        if self.wounds.is_patient {
            self.await_whole(Duration::ZERO);
            self.store.await_heard();
            self.set_patient(false);
        }
        let healed_at = self.await_whole(self.store.settles_in());
        self.fleet.history.add(healed_at, NEMESIS, What::Healed);
        healed_at
    }

    /// Waits until the store has been whole for so long, and returns since when it has been.
    pub(super) fn await_whole(&mut self, settled: Duration) -> Moment {
        let until = clock::now() + WHOLE_AGAIN_MAX;
        let mut whole_since = None;
        loop {
            let trouble = self.store.trouble();
            let now = clock::now();
            match trouble {
                None => {
                    let since = *whole_since.get_or_insert(now);
                    if now.since(since) >= settled {
                        return since;
                    }
                }
                Some(trouble) => {
                    whole_since = None;
                    let late = "the store is not whole after";
                    assert!(now < until, "{late} {WHOLE_AGAIN_MAX:?}: {trouble}");
                }
            }
            self.sleep(LOOK_WHETHER_WHOLE_EVERY);
        }
    }

    /// When, after `since`, somebody first got or kept a term; `None` if nobody did in time.
    pub(super) fn await_proof(&mut self, since: Moment, patience: Duration) -> Option<Moment> {
        let until = clock::now() + patience;
        loop {
            if let Some(at) = self.fleet.proven_after(since) {
                return Some(at);
            }
            if clock::now() >= until {
                return None;
            }
            self.sleep(LISTEN_EVERY);
        }
    }
}
