//! What goes wrong in a world: processes, hosts and wires.

use tenure_core::InstanceId;
use tenure_core::protocol::{Hint, Token};

use crate::algorithm::Want;
use crate::nodes::NodeFault;
use crate::people::LOWEST;
use crate::world::{Event, World, span};

/// One thing that may happen to a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process stands still; its host's clock goes on.
    Pause,
    /// A host sleeps: its processes stand still, the clock goes on, the connection is gone.
    Suspend,
    /// A host is frozen with its clock, as a virtual machine is.
    VmPause,
    /// The driver of a process gets no time; its work and its clock go on.
    Starve,
    Crash,
    Stop,
    /// All processes start again with longer leases.
    Raise,
    Break,
    CutOff,
    CutReplies,
    Slow,
    Deaf,
    ForgedHint,
    /// From here on somebody keeps publishing that a term began.
    HintStorm,
    /// The connection of a process leads to a server that has old data and takes no writes.
    Astray,
    ClockRate,
    ServerPause,
    /// The store denies this login everything, until somebody grants it again.
    Denied,
    RestartEmpty,
    /// The store starts again with what was saved some time ago: a snapshot, or a backup.
    RestartOld,
    /// The store starts again without the last moments: a log that is synced now and then.
    RestartTail,
    /// The store starts again with all of its data.
    RestartKept,
    Failover,
    IsolatedPrimary,
    FlushAmongVeterans,
    FlushForNewcomer,
    ServerClockForward,
    ServerClockBack,
    /// The store's clock, which was far ahead when the world began, is set right.
    ClockCorrected,
    /// Cluster: the owner of the slot dies with its data, another takes the empty slot.
    SlotLost,
    /// Cluster: the slot moves to another node with its data.
    SlotMoved,
    AskToResign,
    AskToHandOver,
    OperatorPause,
    /// The same for a moment or for several leases, and whoever leads must keep its term.
    OperatorPauseWatched,
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
            Fault::Starve => self.starve(party),
            Fault::Crash => self.crash(party),
            Fault::Stop => self.stop(party),
            Fault::Raise => self.raise_leases(),
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
            Fault::HintStorm => self.begin_storm(),
            Fault::Astray => self.lead_astray(party),
            Fault::ClockRate => self.change_rates(),
            Fault::ServerPause
            | Fault::Denied
            | Fault::RestartEmpty
            | Fault::RestartOld
            | Fault::RestartTail
            | Fault::RestartKept
            | Fault::Failover
            | Fault::IsolatedPrimary
            | Fault::FlushAmongVeterans
            | Fault::FlushForNewcomer
            | Fault::ServerClockForward
            | Fault::ServerClockBack
            | Fault::ClockCorrected
            | Fault::SlotLost
            | Fault::SlotMoved => self.inflict_on_store(fault),
            Fault::AskToResign
            | Fault::AskToHandOver
            | Fault::OperatorPause
            | Fault::OperatorResume
            | Fault::Clear => self.operate(fault),
            Fault::OperatorPauseWatched => {
                let lasts = self.outage();
                self.pause_election(lasts);
            }
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

    pub(crate) fn make_want(&mut self, party: usize, want: Want) {
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

    /// Nothing reaches the core of a process for a while, and then everything at once.
    fn starve(&mut self, party: usize) {
        if !self.parties[party].is_alive || self.parties[party].is_held(self.now) {
            return;
        }
        let lasts = self.outage();
        self.parties[party].starved_until = self.now + lasts;
        self.note_party(party, || format!("its driver starves for {:?}", span(lasts)));
        self.after(lasts, Event::Resumed { party });
    }

    /// An operator deploys longer leases: every process ends, and starts again with them. Nobody
    /// runs on with shorter settings beside one that has longer ones.
    fn raise_leases(&mut self) {
        if self.lease_now == self.climate.lease {
            return;
        }
        self.lease_now = self.climate.lease;
        self.note("world", || "all leases are raised");
        for party in 0..self.parties.len() {
            if self.parties[party].is_alive {
                self.end_process(party);
                let back_after = self.random.below(self.climate.lease / 4);
                self.after(back_after, Event::Starts { party });
            }
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
        let token = *self.random.pick(&[None, known, Some(Token::MAX)]);
        let id = match self.random.percent(50) {
            true => InstanceId::seen("nobody"),
            false => self.id_in(party),
        };
        let ttl = span(self.climate.lease * 1_000);
        let hint = match self.random.below(6) {
            0 => Hint::Released { token },
            1 => Hint::Granted { id, token: token.unwrap_or(LOWEST), ttl },
            2 => Hint::Transferred { token: token.unwrap_or(LOWEST), to: id, claim_ttl: ttl },
            3 => Hint::Wished { token: token.unwrap_or(LOWEST) },
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

    /// Somebody publishes again and again that a term began: faults are healed, this is not one.
    fn begin_storm(&mut self) {
        if !std::mem::replace(&mut self.storms, true) {
            self.storm();
        }
    }

    pub(crate) fn storm(&mut self) {
        let (token, ttl) = (Token::MAX, span(self.climate.lease * 2));
        let hint = Hint::Granted { id: InstanceId::seen("nobody"), token, ttl };
        for party in 0..self.parties.len() {
            let life = self.parties[party].life;
            for line in 0..self.climate.nodes {
                self.after(0, Event::Hint { party, life, line, hint: hint.clone() });
            }
        }
        let pause = self.random.share(self.climate.lease, 150, 450);
        self.after(pause, Event::Storm);
    }
}
