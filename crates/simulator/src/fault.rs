//! What goes wrong in a world, what people do in it, and how all of that ends.

use tenure_core::protocol::{Hint, Request, Token, WishKind};
use tenure_core::{InstanceId, ServerTime};

use crate::algorithm::{Op, Want};
use crate::case::Replicas;
use crate::clock::{MILLISECOND, Real, SECOND};
use crate::flaw::Flaw;
use crate::network::RECONNECTS_WITHIN;
use crate::nodes::NodeFault;
use crate::party::Link;
use crate::promise::Promise;
use crate::world::{Event, World, span};

/// How soon after a release a healed world must have its next leader.
const RELEASE_HEARD_WITHIN: u64 = SECOND + RECONNECTS_WITHIN;

/// One thing that may happen to a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process stands still; its host's clock goes on.
    Pause,
    /// A host sleeps: its processes stand still, the clock goes on, the connection is gone.
    Suspend,
    /// A host is frozen with its clock, as a virtual machine is.
    VmPause,
    Crash,
    Stop,
    Break,
    CutOff,
    CutReplies,
    Slow,
    Deaf,
    ForgedHint,
    ClockRate,
    ServerPause,
    RestartEmpty,
    Failover,
    IsolatedPrimary,
    FlushAmongVeterans,
    FlushForNewcomer,
    ServerClockForward,
    AskToResign,
    AskToHandOver,
    OperatorPause,
    OperatorResume,
    Clear,
    Resign,
    HandOver,
    Unready,
    Ready,
    PauseHere,
    ResumeHere,
    BeatsFail,
    RenewNow,
    /// To one of several nodes, a minority at a time.
    Node(NodeFault),
    /// The same, also while the others do not hold the lease.
    ExposedNode(NodeFault),
    /// To any of several nodes.
    AnyNode(NodeFault),
}

impl World<'_> {
    pub(crate) fn inflict(&mut self, fault: Fault) {
        let party = self.random.below(self.parties.len() as u64) as usize;
        // The one who leads is the interesting one.
        let party = match self.leader() {
            Some(leader) if self.random.percent(40) => leader,
            _ => party,
        };
        self.note("fault", || format!("{fault:?}"));
        match fault {
            Fault::Pause | Fault::Suspend | Fault::VmPause => self.pause(party, fault),
            Fault::Crash => self.crash(party),
            Fault::Stop => self.stop(party),
            Fault::Break => {
                let down_for = self.outage();
                self.break_links(party, down_for);
            }
            Fault::Node(fault) => self.strike_node(fault),
            Fault::ExposedNode(fault) => self.strike_exposed_node(fault),
            Fault::AnyNode(fault) => self.strike_any_node(fault),
            Fault::CutOff | Fault::CutReplies | Fault::Slow | Fault::Deaf => {
                self.disturb_link(party, fault);
            }
            Fault::ForgedHint => self.forge_hint(party),
            Fault::ClockRate => self.change_rates(),
            Fault::ServerPause
            | Fault::RestartEmpty
            | Fault::Failover
            | Fault::IsolatedPrimary
            | Fault::FlushAmongVeterans
            | Fault::FlushForNewcomer
            | Fault::ServerClockForward => self.inflict_on_store(fault),
            Fault::AskToResign
            | Fault::AskToHandOver
            | Fault::OperatorPause
            | Fault::OperatorResume
            | Fault::Clear => self.operate(fault),
            Fault::Resign => self.make_want(party, Want::Resign),
            Fault::HandOver => self.make_want(party, Want::HandOver),
            Fault::Unready => self.make_want(party, Want::Ready(false)),
            Fault::Ready => self.make_want(party, Want::Ready(true)),
            Fault::PauseHere => self.make_want(party, Want::Paused(true)),
            Fault::ResumeHere => self.make_want(party, Want::Paused(false)),
            Fault::RenewNow => self.make_want(party, Want::RenewNow),
            Fault::BeatsFail => {
                let lasts = self.outage();
                self.parties[party].beats_fail_until = self.now + lasts;
            }
        }
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        (0..self.parties.len()).find(|&party| self.parties[party].is_valid(self.now))
    }

    fn make_want(&mut self, party: usize, want: Want) {
        let life = self.parties[party].life;
        self.after(0, Event::Want { party, life, want });
    }

    /// How long something is away: a blink, about a lease, or several.
    pub(crate) fn outage(&mut self) -> u64 {
        let lease = self.climate.lease;
        match self.random.below(10) {
            0..=3 => self.random.share(lease, 1, 300),
            4..=7 => self.random.share(lease, 300, 1_300),
            _ => self.random.share(lease, 1_300, 4_000),
        }
    }

    // ------------------------------------------------------------------ processes and hosts

    fn pause(&mut self, party: usize, fault: Fault) {
        if !self.parties[party].is_alive || self.parties[party].is_paused(self.now) {
            return;
        }
        let lasts = self.outage();
        let until = self.now + lasts;
        if fault != Fault::Pause {
            self.break_links(party, lasts);
        }
        self.parties[party].paused_until = until;
        self.note_party(party, || format!("stands still ({fault:?}) for {:?}", span(lasts)));
        if fault == Fault::VmPause {
            let off_ppm = self.parties[party].clock.off_ppm();
            self.parties[party].clock.stand_still(self.now);
            self.at(until, Event::Thawed { party, off_ppm });
        } else {
            self.at(until, Event::Resumed { party });
        }
    }

    fn crash(&mut self, party: usize) {
        if self.parties[party].is_alive {
            self.end_process(party);
            self.parties[party].paused_until = 0;
            let back_after = self.outage();
            self.after(back_after, Event::Starts { party });
        }
    }

    fn stop(&mut self, party: usize) {
        if self.parties[party].is_alive {
            self.make_want(party, Want::Stop);
            let back_after = 2 * self.climate.lease + self.outage();
            self.after(back_after, Event::Starts { party });
        }
    }

    fn change_rates(&mut self) {
        let now = self.now;
        for party in 0..self.parties.len() {
            let off_ppm = self.drift();
            if self.parties[party].clock.real_at(u64::MAX / 2).is_some() {
                self.parties[party].clock.set_rate(now, off_ppm);
            }
        }
        let first = self.quorum.map_or(self.cluster.primary, |_| 0);
        for node in first..self.cluster.nodes.len() {
            let off_ppm = self.drift();
            self.cluster.nodes[node].clock.set_rate(now, off_ppm);
        }
    }

    /// Half of the promised bound for each side, so that any two differ by at most the whole.
    pub(crate) fn drift(&mut self) -> i64 {
        self.random.between(0, 10_000) as i64 - 5_000
    }

    // ------------------------------------------------------------------ wires

    fn disturb_link(&mut self, party: usize, fault: Fault) {
        let until = self.now + self.outage();
        for link in &mut self.parties[party].links {
            match fault {
                Fault::CutOff => {
                    link.loses_requests_until = until;
                    link.loses_replies_until = until;
                    link.deaf_until = until;
                }
                Fault::CutReplies => link.loses_replies_until = until,
                Fault::Slow => link.slow_until = until,
                _ => link.deaf_until = until,
            }
        }
    }

    fn forge_hint(&mut self, party: usize) {
        let known = self.token_now();
        let token = *self.random.pick(&[Token::NONE, known, Token::MAX]);
        let id = match self.random.percent(50) {
            true => InstanceId::seen("nobody"),
            false => self.id_in(party),
        };
        let ttl = span(self.climate.lease * 1_000);
        let hint = match self.random.below(6) {
            0 => Hint::Released { token },
            1 => Hint::Granted { id, token, ttl },
            2 => Hint::Transferred { token, to: id, claim_ttl: ttl },
            3 => Hint::Wished { token },
            4 => Hint::Members,
            _ => Hint::PauseChanged,
        };
        let life = self.parties[party].life;
        // One node makes it up, or all do.
        let lines = match self.climate.nodes {
            1 => 0..1,
            nodes if self.random.percent(50) => 0..nodes,
            _ => 0..1,
        };
        for line in lines {
            self.after(0, Event::Hint { party, life, line, hint: hint.clone() });
        }
    }

    // ------------------------------------------------------------------ the store

    fn inflict_on_store(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::ServerPause => {
                let lasts = self.outage();
                self.cluster.primary().paused_until = now + lasts;
            }
            Fault::RestartEmpty => self.restart_empty(),
            Fault::Failover => self.fail_over(),
            Fault::IsolatedPrimary => self.isolate_primary(),
            Fault::FlushAmongVeterans => {
                if self.parties.iter().all(|place| place.is_alive && place.has_seen_token) {
                    self.flush();
                }
            }
            Fault::FlushForNewcomer => {
                self.flush();
                let party = self.random.below(self.parties.len() as u64) as usize;
                if Some(party) != self.leader() && self.parties[party].is_alive {
                    self.end_process(party);
                    self.after(MILLISECOND, Event::Starts { party });
                }
            }
            _ => {
                let by = self.random.share(self.climate.lease, 200, 3_000);
                self.cluster.primary().clock.step_forward(now, by);
            }
        }
    }

    fn flush(&mut self) {
        self.cluster.primary().store.flush();
        self.attach_replicas();
    }

    fn restart_empty(&mut self) {
        let down_for = self.random.share(self.climate.lease, 10, 300);
        let now = self.now;
        let node = self.cluster.primary();
        node.paused_until = now + down_for;
        let started_at = ServerTime(node.server_time(now).0 + down_for / 1_000);
        node.store.restart_empty(started_at);
        self.attach_replicas();
        let node = self.cluster.primary;
        self.break_links_to(node);
    }

    /// The replicas of the primary begin anew from a copy of it.
    pub(crate) fn attach_replicas(&mut self) {
        self.cluster.detach_replicas();
        let count = match self.case.replicas {
            Replicas::None | Replicas::Quorum => 0,
            Replicas::Lagging => 1,
            Replicas::Confirming => self.climate.replicas,
        };
        for _ in 0..count {
            let reach = self.climate.lease / 4;
            let ahead = self.random.between(0, 2 * reach) as i64 - reach as i64;
            let off_ppm = self.drift();
            self.cluster.attach_replica(self.now, ahead, off_ppm);
        }
    }

    fn promote_replica(&mut self) {
        let is_strict = self.case.replicas == Replicas::Confirming;
        let lag = match self.random.percent(50) {
            // What was confirmed was heard of: there the lag is drawn for each write.
            _ if is_strict => 0,
            true => self.random.below(50 * MILLISECOND),
            false => self.random.below(self.climate.lag_max + 1),
        };
        self.note("store", || format!("fails over to a replica {:?} behind", span(lag)));
        let choice = match self.cluster.replicas_of(self.cluster.primary) {
            0 | 1 => 0,
            // Not always the one that heard most.
            count => self.random.below(count as u64) as usize,
        };
        self.cluster.promote_replica(self.now, lag, choice);
        // Others stay with the old primary for as long as that lives; new ones come.
        self.attach_replicas();
    }

    fn fail_over(&mut self) {
        let old = self.cluster.primary;
        self.cluster.nodes[old].is_alive = false;
        self.promote_replica();
        self.break_links_to(old);
    }

    /// The replica takes over while the old primary goes on serving whoever still reaches it.
    fn isolate_primary(&mut self) {
        let old = self.cluster.primary;
        self.promote_replica();
        for party in 0..self.parties.len() {
            if self.random.percent(50) {
                let down_for = self.outage();
                self.break_links(party, down_for);
            }
        }
        let found_out_after = self.random.share(self.climate.lease, 500, 5_000);
        self.after(found_out_after, Event::Demoted { node: old });
    }

    pub(crate) fn demoted(&mut self, node: usize) {
        self.cluster.nodes[node].is_alive = false;
        self.break_links_to(node);
    }

    fn break_links_to(&mut self, node: usize) {
        for party in 0..self.parties.len() {
            if self.parties[party].links[0].node == node {
                let down_for = self.random.share(self.climate.lease, 1, 600);
                self.break_link(party, 0, down_for);
            }
        }
    }

    // ------------------------------------------------------------------ people

    fn token_now(&mut self) -> Token {
        if self.quorum.is_some() {
            return self.majority_token();
        }
        let (now, resource) = (self.now, self.resource.clone());
        let node = self.cluster.primary();
        node.store.token_of(node.server_time(now), &resource)
    }

    fn operate(&mut self, fault: Fault) {
        let token = self.token_now();
        let stands_for = span(self.climate.lease * 2);
        let request = match fault {
            Fault::AskToResign => Request::Ask { token, wish: WishKind::Resign, stands_for },
            Fault::AskToHandOver => {
                let party = self.random.below(self.parties.len() as u64) as usize;
                let to = self.id_in(party).as_str().to_owned();
                Request::Ask { token, wish: WishKind::HandOver { to }, stands_for }
            }
            Fault::OperatorPause => Request::Pause { lasts: span(self.climate.lease * 3) },
            Fault::OperatorResume => Request::Resume,
            _ => {
                let quarantine = span(self.climate.lease * 101 / 100 + 2 * MILLISECOND);
                Request::Clear { reason: "test".into(), quarantine }
            }
        };
        self.operator_says(request);
    }

    fn operator_says(&mut self, request: Request) {
        let now = self.now;
        if self.quorum.is_some() {
            return self.operator_says_to_all(&request);
        }
        let node = self.cluster.primary();
        if now < node.paused_until || !self.subject.speaks_protocol() {
            return;
        }
        let mut id = InstanceId::seen("operator");
        let mut request = request;
        if self.subject.flaw() == Some(Flaw::ThirdPartyRelease)
            && let Request::Ask { token, wish: WishKind::Resign, .. } = request
        {
            let node = self.cluster.primary();
            let holder = node.store.get(node.server_time(now), self.resource.key());
            id = InstanceId::seen(holder.unwrap_or_default());
            let reason = tenure_core::protocol::CloseReason::Released;
            request = Request::Release { token, reason };
        }
        let caller = self.caller(id);
        let node = self.cluster.primary;
        self.execute(node, &Op::Call(request), &caller);
    }

    fn operator_says_to_all(&mut self, request: &Request) {
        let caller = self.caller(InstanceId::seen("operator"));
        for node in 0..self.cluster.nodes.len() {
            if self.now >= self.cluster.nodes[node].paused_until {
                self.execute(node, &Op::Call(request.clone()), &caller);
            }
        }
    }

    // ------------------------------------------------------------------ healing

    /// Everything works again: from here on a leader is due.
    pub(crate) fn heal(&mut self) {
        self.note("world", || "all faults are healed");
        self.healed_at = Some(self.now);
        self.led_since_heal = self.leader().is_some();
        for node in 0..self.cluster.nodes.len() {
            self.cluster.nodes[node].paused_until = 0;
            let is_current = self.quorum.is_some() || node == self.cluster.primary;
            self.cluster.nodes[node].is_alive &= is_current;
        }
        self.operator_says(Request::Resume);
        for party in 0..self.parties.len() {
            self.heal_party(party);
        }
        let due_at = self.now + self.leader_due_within();
        self.settled_at = due_at;
        self.at(due_at, Event::LeaderDue { since: self.now });
        let lease = self.climate.lease;
        self.at(due_at + lease / 2, Event::Unseat);
        self.at(due_at + 2 * lease, Event::Unseat);
    }

    fn heal_party(&mut self, party: usize) {
        let now = self.now;
        if self.parties[party].is_paused(now) {
            self.parties[party].paused_until = now;
            self.after(0, Event::Resumed { party });
        }
        if self.parties[party].clock.real_at(u64::MAX / 2).is_none() {
            let off_ppm = self.drift();
            self.after(0, Event::Thawed { party, off_ppm });
        }
        self.parties[party].beats_fail_until = 0;
        self.parties[party].links.iter_mut().for_each(Link::heal);
        if !self.parties[party].is_alive {
            return self.start_process(party);
        }
        if self.parties[party].work.is_told_to_stop {
            self.stop_work(party);
        }
        let down_for = self.random.below(RECONNECTS_WITHIN);
        self.break_links(party, down_for);
        self.make_want(party, Want::Ready(true));
        self.make_want(party, Want::Paused(false));
    }

    /// Q + ttl + 1 s, on a store clock that may be slow, plus the time to connect again.
    fn leader_due_within(&self) -> Real {
        let ttl = self.climate.lease;
        let quarantine = ttl / 100 * 101 + 2 * MILLISECOND;
        (quarantine + ttl) / 100 * 101 + SECOND + RECONNECTS_WITHIN
    }

    pub(crate) fn leader_due(&mut self, since: Real) {
        if !self.led_since_heal {
            let what = format!("nobody led within {:?} after healing", span(self.now - since));
            self.judge.broken(Promise::P6, self.now, what);
        }
    }

    /// After a release the next leader comes at once, unless a loss of data that this case does not
    /// cover is noticed only then, or somebody saw a term on an isolated primary that nobody
    /// confirmed: either costs one more quarantine.
    pub(crate) fn successor_due_within(&self) -> u64 {
        let isolates = self.case.faults.iter().any(|(fault, _)| *fault == Fault::IsolatedPrimary);
        match self.case.is_promised() && !isolates {
            true => RELEASE_HEARD_WITHIN,
            false => self.leader_due_within(),
        }
    }

    pub(crate) fn successor_due(&mut self, terms: u64, within: u64) {
        if self.judge.terms() <= terms {
            let within = span(within);
            let what = format!("nobody led within {within:?} after the leader stepped down");
            self.judge.broken(Promise::P6, self.now, what);
        }
    }

    pub(crate) fn unseat(&mut self) {
        match self.leader() {
            Some(leader) if self.random.percent(50) => self.make_want(leader, Want::Resign),
            Some(_) => self.operate(Fault::AskToResign),
            None => {}
        }
    }
}
