//! What must hold, and what was seen to break it.
//!
//! The judge sees what leaves and what arrives, and what really works and is really cut. It takes
//! nobody's count of votes or reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use store_cluster::{Body, Cluster, Event as Note, Flags, Message, NodeId, SlotSet};

use super::by_hand::ByHand;
use super::world::World;
use crate::network::Host as HostIndex;
use crate::queue::Real;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// No two nodes serve a slot with one epoch, and an epoch that was told is not forgotten.
    K1,
    /// One vote per voter and epoch, across crashes.
    K2,
    /// At most one winner per epoch, and only by votes of that epoch.
    K3,
    /// A master in a minority refuses writes in time, and waits before it takes them again.
    K4,
    /// Once healed, all agree on slots, roles and epochs.
    K5,
    /// No replica of a replica stays, no orphan while there is a spare; nobody moves too early.
    K6,
    /// Two clusters never merge.
    K7,
    /// A key that moves is on one side, and no acknowledged value is lost.
    K8,
    /// Nobody is failed without a majority's word, everybody hears of it, and it is cleared.
    K9,
    /// Replicas with old data never stand, the freshest stands first, lost elections are repeated.
    K10,
    /// Who loses its last slot follows the taker.
    K11,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// When, in milliseconds.
    pub at: Real,
    /// How.
    pub what: String,
}

/// What a node claims to be.
#[derive(Clone, Debug)]
struct Claim {
    epoch: u64,
    slots: Arc<SlotSet>,
}

/// A time without a majority.
#[derive(Clone, Copy, Debug)]
struct Minority {
    since: Real,
    until: Real,
}

/// Since when a replica works without a break.
#[derive(Clone, Copy, Debug)]
struct Span {
    master: NodeId,
    since: Real,
    last_at: Real,
}

#[derive(Debug)]
pub(crate) struct Judge {
    /// The one rule that is looked at, if it is one.
    pub(crate) only: Option<Rule>,
    pub(crate) violation: Option<Violation>,
    claims: Vec<Option<Claim>>,
    epochs_told: Vec<u64>,
    /// Epochs that were taken without votes: two nodes may take the same, until they meet.
    unvoted: BTreeSet<(HostIndex, u64)>,
    votes: BTreeMap<(HostIndex, u64), HostIndex>,
    voters: BTreeMap<(HostIndex, u64), BTreeSet<HostIndex>>,
    winners: BTreeMap<u64, HostIndex>,
    /// Operators changed who has slots.
    pub(crate) has_voters_by_hand: bool,
    /// Who was told by whom that a node cannot be reached, and when.
    reports: Vec<BTreeMap<(NodeId, NodeId), Real>>,
    minorities: Vec<Option<Minority>>,
    /// When a node last began or ceased to serve.
    pub(crate) state_changed_at: Vec<Real>,
    /// When a master last had a replica that worked and was not cut off from anybody.
    replica_seen_at: BTreeMap<NodeId, Real>,
    spans: Vec<Option<Span>>,
    /// Who takes over by an operator's order, with its master's help.
    pub(crate) by_hand: Vec<Option<ByHand>>,
    /// Whose last election was an operator's.
    stands_by_hand: Vec<bool>,
}

impl Judge {
    pub(crate) fn new(hosts: usize) -> Self {
        Self {
            only: None,
            violation: None,
            claims: vec![None; hosts],
            epochs_told: vec![0; hosts],
            unvoted: BTreeSet::new(),
            votes: BTreeMap::new(),
            voters: BTreeMap::new(),
            winners: BTreeMap::new(),
            has_voters_by_hand: false,
            reports: vec![BTreeMap::new(); hosts],
            minorities: vec![None; hosts],
            state_changed_at: vec![0; hosts],
            replica_seen_at: BTreeMap::new(),
            spans: vec![None; hosts],
            by_hand: vec![None; hosts],
            stands_by_hand: vec![false; hosts],
        }
    }

    pub(crate) fn broken(&mut self, rule: Rule, at: Real, what: impl FnOnce() -> String) {
        let is_watched = self.only.is_none_or(|only| only == rule);
        if is_watched && self.violation.is_none() {
            self.violation = Some(Violation { rule, at, what: what() });
        }
    }

    pub(crate) fn crashed(&mut self, host: HostIndex) {
        self.claims[host] = None;
        self.reports[host].clear();
    }

    pub(crate) fn restarted(&mut self, now: Real, host: HostIndex, core: &Cluster) {
        let (told, known) = (self.epochs_told[host], core.current_epoch());
        if known < told {
            self.broken(Rule::K1, now, || format!("{host} told of epoch {told} and knows {known}"));
        }
    }

    /// A message leaves.
    pub(crate) fn see_send(
        &mut self,
        now: Real,
        from: HostIndex,
        to: HostIndex,
        message: &Message,
    ) {
        let header = &message.header;
        if header.master.is_none() {
            self.epochs_told[from] = self.epochs_told[from].max(header.config_epoch);
        }
        if matches!(message.body, Body::AuthAck) {
            let epoch = header.current_epoch;
            let first = self.votes.insert((from, epoch), to);
            // The same vote may be said again.
            if let Some(first) = first.filter(|first| *first != to) {
                self.broken(Rule::K2, now, || {
                    format!("{from} voted for {first} and for {to} in epoch {epoch}")
                });
            }
            self.voters.entry((to, epoch)).or_default().insert(from);
        }
    }

    /// A message arrives.
    pub(crate) fn see_delivery(&mut self, now: Real, host: HostIndex, message: &Message) {
        let (Body::Ping(gossip) | Body::Pong(gossip) | Body::Meet(gossip)) = &message.body else {
            return;
        };
        let wrong = Flags::FAILED.with(Flags::SUSPECTED);
        for entry in gossip.iter().filter(|entry| entry.flags.has(wrong)) {
            self.reports[host].insert((entry.id, message.header.sender), now);
        }
    }

    fn see_win(&mut self, now: Real, host: HostIndex, epoch: u64, quorum: usize) {
        // Who gives slots to others without votes makes voters without votes, on both sides of a
        // cut: then each side may have its majority. The votes are counted all the same.
        let first = self.winners.insert(epoch, host);
        if let Some(first) = first.filter(|_| !self.has_voters_by_hand) {
            self.broken(Rule::K3, now, || format!("{first} and {host} won epoch {epoch}"));
        }
        let votes = self.voters.get(&(host, epoch)).map_or(0, BTreeSet::len);
        if votes < quorum {
            self.broken(Rule::K3, now, || {
                format!("{host} won epoch {epoch} with {votes} votes, {quorum} were needed")
            });
        }
    }
}

impl World {
    /// Something for the log.
    pub(crate) fn judge_note(&mut self, host: HostIndex, note: &Note) {
        let now = self.queue.now();
        match note {
            Note::EpochTaken(epoch) => {
                self.judge.has_voters_by_hand = true;
                self.judge.unvoted.insert((host, *epoch));
            }
            Note::ElectionWon { epoch, quorum } => {
                self.outcome.elections += 1;
                self.judge.see_win(now, host, *epoch, *quorum);
                self.judge_win_by_hand(host);
                // A voter that works was replaced. Until all have heard, both may vote: of three
                // with two on each side of a cut, each side has two.
                self.judge.has_voters_by_hand |= self.judge.stands_by_hand[host];
            }
            Note::ElectionStarted { planned_at, is_manual: false, .. } => {
                self.judge.by_hand[host] = None;
                self.judge.stands_by_hand[host] = false;
                self.judge_standing(host, *planned_at);
            }
            Note::ElectionStarted { is_manual: true, .. } => {
                self.judge.stands_by_hand[host] = true;
                self.note_standing_by_hand(host);
            }
            Note::StateChanged { is_ok } => self.judge_state(host, *is_ok),
            Note::Migrating { to } => {
                self.outcome.moves += 1;
                let seen_at = self.judge.replica_seen_at.get(to).copied().unwrap_or(0);
                if now < seen_at + ORPHANED_MIN {
                    self.judge.broken(Rule::K6, now, || {
                        format!("{host} moves to {to}, which had a replica at {seen_at}")
                    });
                }
            }
            _ => {}
        }
    }

    /// K1: nobody else claims the same with the same epoch.
    pub(crate) fn judge_claim(&mut self, host: HostIndex) {
        if self.climate.is_stranger(host) {
            return;
        }
        let me = self.hosts[host].core.me();
        let claim =
            me.is_voter().then(|| Claim { epoch: me.config_epoch, slots: Arc::clone(&me.slots) });
        let is_same = match (&self.judge.claims[host], &claim) {
            (None, None) => true,
            (Some(old), Some(new)) => old.epoch == new.epoch && Arc::ptr_eq(&old.slots, &new.slots),
            _ => false,
        };
        if is_same {
            return;
        }
        self.judge.claims[host] = claim;
        let Some(claim) = self.judge.claims[host].clone() else { return };
        for other in self.members().filter(|other| *other != host) {
            let Some(theirs) = &self.judge.claims[other] else { continue };
            let epoch = claim.epoch;
            let is_unvoted = self.judge.unvoted.contains(&(host, epoch))
                || self.judge.unvoted.contains(&(other, epoch));
            if theirs.epoch == epoch && theirs.slots.intersects(&claim.slots) && !is_unvoted {
                let now = self.queue.now();
                self.judge.broken(Rule::K1, now, || {
                    format!("{host} and {other} serve a slot with epoch {epoch}")
                });
            }
        }
    }

    /// K9: a majority said so, and everybody is told.
    pub(crate) fn judge_failed(&mut self, host: HostIndex, id: NodeId, is_told: bool) {
        let now = self.queue.now();
        self.outcome.failures += 1;
        let core = &self.hosts[host].core;
        let oldest = now.saturating_sub(2 * self.climate.node_timeout + DRIFT_SLACK);
        let reports = self.judge.reports[host].iter();
        let fresh = reports.filter(|((about, _), at)| *about == id && **at >= oldest).count();
        let agreeing = fresh + usize::from(core.me().is_voter());
        let quorum = core.size() / 2 + 1;
        let is_linked = |node: &store_cluster::Node| {
            node.link.is_some_and(|link| link.is_up) && !node.is_in_handshake()
        };
        let has_listeners = core.nodes().iter().any(|(_, node)| is_linked(node));
        if agreeing < quorum {
            self.judge.broken(Rule::K9, now, || {
                format!("{host} takes {id} for failed by {agreeing} of {quorum} opinions")
            });
        }
        if has_listeners && !is_told {
            self.judge.broken(Rule::K9, now, || format!("{host} keeps the failure of {id}"));
        }
    }

    /// K10: its data is young enough, and whoever has more went first.
    fn judge_standing(&mut self, host: HostIndex, planned_at: u64) {
        let now = self.queue.now();
        let this = &self.hosts[host];
        let monotonic = this.now(now).monotonic_ms;
        let settings = self.climate.settings(0);
        let (timeout, factor) = (settings.node_timeout, settings.validity_factor);
        let age = this.data.in_step_at.map(|at| monotonic - at);
        let limit = settings.ping_period + timeout * factor + timeout;
        if age.is_none_or(|age| factor > 0 && age > limit) {
            self.judge.broken(Rule::K10, now, || format!("{host} stands with data of {age:?} ms"));
        }
        let this = &self.hosts[host];
        let Some(master) = this.core.me().master else { return };
        let replicas = this.core.nodes().replicas_of(master);
        let is_ahead = |node: &store_cluster::Node| {
            node.offset > this.data.offset && node.id != this.id && node.is_fine()
        };
        let ahead = replicas.filter(|(_, node)| is_ahead(node)).count() as u64;
        let waited = monotonic - planned_at;
        if waited < 500 + 1_000 * ahead {
            self.judge.broken(Rule::K10, now, || {
                format!("{host} stands after {waited} ms, {ahead} replicas have more")
            });
        }
    }

    /// K11: a master without slots is no master any more.
    pub(crate) fn judge_last_slot(&mut self, host: HostIndex, was_voter: bool) {
        let me = self.hosts[host].core.me();
        if was_voter && me.is_master() && me.slot_count == 0 {
            let now = self.queue.now();
            self.judge.broken(Rule::K11, now, || format!("{host} lost its slots and stays"));
        }
    }

    /// Slots that an operator told `host` to give to `from`, which says itself that it has them,
    /// with an epoch that is no greater one.
    pub(crate) fn ordered_away(
        &self,
        host: HostIndex,
        from: HostIndex,
        epoch: u64,
        message: &Message,
    ) -> SlotSet {
        let (core, header) = (&self.hosts[host].core, &message.header);
        if header.config_epoch > epoch || !matches!(message.body, Body::Pong(_)) {
            return SlotSet::default();
        }
        let taker = core.nodes().find(self.hosts[from].id);
        let is_ordered = |slot: &u16| taker.is_some() && core.migrating_to(*slot) == taker;
        let open = core.open_slots().into_iter().filter(is_ordered);
        SlotSet::of(open.filter(|slot| header.slots.contains(*slot)))
    }

    /// K5: a master gives its slots up to a newer claim alone, or to whom it was told to.
    pub(crate) fn judge_loss(
        &mut self,
        host: HostIndex,
        epoch: u64,
        had: &Arc<SlotSet>,
        ordered: &SlotSet,
        message: &Message,
    ) {
        let me = self.hosts[host].core.me();
        if Arc::ptr_eq(had, &me.slots) || had.without(&me.slots).without(ordered).is_empty() {
            return;
        }
        let claimed = match &message.body {
            Body::Update(update) => update.config_epoch,
            _ => message.header.config_epoch,
        };
        if claimed <= epoch {
            let now = self.queue.now();
            self.judge.broken(Rule::K5, now, || {
                format!("{host} gives slots of epoch {epoch} up to a claim of epoch {claimed}")
            });
        }
    }

    /// What is to be looked at all the time.
    pub(crate) fn judge_tick(&mut self, host: HostIndex) {
        self.judge_strangers(host);
        if !self.climate.is_stranger(host) {
            self.judge_minority(host);
            self.note_replica(host);
        }
    }

    /// K7: nobody from another cluster is known.
    fn judge_strangers(&mut self, host: HostIndex) {
        if self.climate.strangers == 0 {
            return;
        }
        let is_mine = self.climate.is_stranger(host);
        let ids = self.hosts[host].core.nodes().iter().filter(|(_, n)| !n.is_in_handshake());
        let known = ids.filter_map(|(_, node)| self.by_id.get(&node.id).copied());
        let stranger = known.into_iter().find(|other| self.climate.is_stranger(*other) != is_mine);
        if let Some(other) = stranger {
            let now = self.queue.now();
            self.judge
                .broken(Rule::K7, now, || format!("{host} knows {other} of the other cluster"));
        }
    }

    /// Since when a host reaches no majority of the masters that it knows, by what is really cut.
    fn minority_since(&self, host: HostIndex) -> Option<Real> {
        let (now, core) = (self.queue.now(), &self.hosts[host].core);
        let (mut size, mut reached, mut since) = (0, 0, 0);
        for (_, node) in core.nodes().iter().filter(|(_, node)| node.is_voter()) {
            size += 1;
            let Some(other) = self.by_id.get(&node.id).copied() else { continue };
            let inward = self.links.cut_since(other, host, now);
            match inward.zip(self.links.cut_since(host, other, now)) {
                Some((inward, outward)) => since = since.max(inward).max(outward),
                None => reached += 1,
            }
        }
        (reached <= size / 2).then_some(since)
    }

    /// K4, first half: no writes once cut off for long enough.
    fn judge_minority(&mut self, host: HostIndex) {
        let now = self.queue.now();
        let cut_since = self.minority_since(host).filter(|_| !self.is_told_by_others(host));
        let Some(cut_since) = cut_since else { return };
        let minority = &mut self.judge.minorities[host];
        let previous = minority.filter(|old| now <= old.until + 2 * TICK);
        let since = previous.map_or(now, |old| old.since.max(cut_since));
        *minority = Some(Minority { since, until: now });
        let this = &self.hosts[host];
        let is_serving = this.core.is_ok() && this.core.me().is_voter();
        if is_serving && now - since > self.minority_max() {
            self.judge.broken(Rule::K4, now, || {
                format!("{host} serves, and reaches no majority since {since}")
            });
        }
    }

    /// Pongs of masters that are cut off from here may be told by nodes that are not.
    fn is_told_by_others(&self, host: HostIndex) -> bool {
        let now = self.queue.now();
        let hears = |from: HostIndex, to: HostIndex| !self.links.is_cut(from, to, now);
        let masters: Vec<HostIndex> =
            self.members().filter(|other| self.hosts[*other].is_serving_master()).collect();
        let relays = self.members().filter(|relay| *relay != host && hears(*relay, host));
        relays.into_iter().any(|relay| {
            masters
                .iter()
                .any(|master| *master != relay && !hears(*master, host) && hears(*master, relay))
        })
    }

    /// A time-out, what was under way, clocks that differ, and a tick.
    fn minority_max(&self) -> Real {
        let weather = self.climate.weather;
        let under_way = weather.delay_max + 2 * super::links::RESEND_MS;
        self.climate.node_timeout + under_way + GOSSIP_AHEAD + 3 * TICK
    }

    /// K4, second half: a master waits before it serves again.
    fn judge_state(&mut self, host: HostIndex, is_ok: bool) {
        let now = self.queue.now();
        self.judge.state_changed_at[host] = now;
        let Some(minority) = self.judge.minorities[host] else { return };
        let is_long = minority.until - minority.since > self.minority_max();
        let rejoin = self.climate.node_timeout.clamp(500, 5_000);
        let is_early = now + DRIFT_SLACK < minority.until + rejoin;
        if is_ok && is_long && is_early && self.hosts[host].core.me().is_voter() {
            self.judge.broken(Rule::K4, now, || {
                format!("{host} serves again, it was cut off until {}", minority.until)
            });
        }
    }

    /// Remembers that a master has a replica which works and which everybody can see.
    fn note_replica(&mut self, host: HostIndex) {
        let now = self.queue.now();
        let Some(master) = self.hosts[host].follows() else { return };
        let is_seen = (0..self.hosts.len()).all(|other| {
            !self.links.is_cut(host, other, now) && !self.links.is_cut(other, host, now)
        });
        let is_new = |span: &&mut Span| span.master != master || now > span.last_at + 2 * TICK;
        if !is_seen {
            self.judge.spans[host] = None;
            return;
        }
        let span = self.judge.spans[host].get_or_insert(Span { master, since: now, last_at: now });
        if is_new(&span) {
            *span = Span { master, since: now, last_at: now };
        }
        span.last_at = now;
        // Everybody needs some time to hear that it is there.
        if now - span.since > 4 * self.climate.node_timeout + 1_000 {
            self.judge.replica_seen_at.insert(master, now);
        }
    }
}

/// How often a node looks after everything.
const TICK: Real = store_cluster::TICK_MS;
/// A clock that is off by a thousandth, over some seconds.
const DRIFT_SLACK: Real = 50;
/// How far ahead pongs may be told.
const GOSSIP_AHEAD: Real = 600;
/// How long a master must have been without a replica.
const ORPHANED_MIN: Real = 4_900;
