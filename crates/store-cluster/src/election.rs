//! A replica takes over from its master: by votes, or because an operator wants it.
//!
//! ```text
//! master failed ─► planned ── delay by rank ─► asked ── majority of votes ─► master
//!      ▲                                         │ not enough in time
//!      └───────────── twice that time later ─────┘
//! ```

use crate::cluster::{Cluster, Save};
use crate::flaw::Flaw;
use crate::message::{Body, Flags, Header, Message};
use crate::node::NodeIndex;
use crate::output::{Event, Output};

/// Before a replica stands: its master's failure must get around first.
const DELAY_MS: u64 = 500;
/// And by chance as much again, so that two of them do not ask at the same time.
const DELAY_RANDOM_MS: usize = 500;
/// For each replica that has more data.
const DELAY_PER_RANK_MS: u64 = 1_000;
/// Votes count for two node time-outs, but not shorter.
const VOTES_MIN_MS: u64 = 2_000;
/// A link to a master that is silent for so many periods of its pings is given up: 60 seconds, as
/// those are ten. It may ping nobody while its clients are paused.
const SILENT_PERIODS_MAX: u64 = 6;
/// How long an operator's failover may take.
const MANUAL_MS: u64 = 5_000;

/// The election that this replica planned last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Election {
    planned: Option<Plan>,
    is_asked: bool,
    epoch: u64,
    pub(crate) voters: Vec<NodeIndex>,
    is_age_told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    planned_at: u64,
    starts_at: u64,
    rank: u64,
}

/// An operator's failover, seen from either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Manual {
    /// This master gives its slots to a replica.
    Giving { to: NodeIndex, until: u64 },
    /// This replica waits until it has all that its master had when it paused.
    Waiting { until: u64, pause: Option<Pause> },
    /// This replica stands although its master works. Its clients are paused, unless the operator
    /// did not want it asked.
    Standing { until: u64, pause: Option<Pause> },
}

/// A master's clients are paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// All that they wrote.
    offset: u64,
    /// The connections to the master and from it. A master that starts again has others, and pauses
    /// nobody.
    links: (Option<u32>, Option<u64>),
}

impl Cluster {
    fn votes_ms(&self) -> u64 {
        (2 * self.settings.node_timeout).max(VOTES_MIN_MS)
    }

    fn is_standing_by_hand(&self) -> bool {
        matches!(self.manual, Some(Manual::Standing { .. }))
    }

    /// Plans, asks, wins or waits.
    pub(crate) fn handle_election(&mut self) {
        let is_manual = self.is_standing_by_hand();
        if !self.may_stand(is_manual) {
            return;
        }
        let (now, votes_ms) = (self.ms(), self.votes_ms());
        let is_over = |plan: Plan| now.saturating_sub(plan.starts_at) > 2 * votes_ms;
        let Some(plan) = self.election.planned.filter(|plan| !is_over(*plan)) else {
            if self.election.planned.is_none() || !self.breaks(Flaw::NoRetry) {
                self.plan(is_manual);
            }
            return;
        };
        let plan = self.wait_for_better(plan);
        if now < plan.starts_at || now - plan.starts_at > votes_ms {
            return;
        }
        if !self.election.is_asked {
            return self.ask_for_votes(plan, is_manual);
        }
        self.win_if_elected();
    }

    fn may_stand(&mut self, is_manual: bool) -> bool {
        let Some(master) = self.me().master.filter(|_| self.can_promise()) else { return false };
        let master = &self.nodes[master];
        if !(master.is_failed() || is_manual) || master.slot_count == 0 {
            self.election.is_age_told = false;
            return false;
        }
        // Who has asked in time may count the votes, however slowly they come.
        if is_manual || self.election.is_asked {
            return true;
        }
        if self.settings.never_stands {
            return false;
        }
        let is_young = self.is_data_young() || self.breaks(Flaw::NoAgeLimit);
        if !is_young && !std::mem::replace(&mut self.election.is_age_told, true) {
            let age = self.data.in_step_at.map(|at| self.ms().saturating_sub(at));
            self.log(Event::DataTooOld { age });
        }
        is_young
    }

    /// Whether this replica was in step with its master not long before that failed.
    fn is_data_young(&self) -> bool {
        let settings = &self.settings;
        let Some(in_step_at) = self.data.in_step_at else { return false };
        let age = self.ms().saturating_sub(in_step_at);
        let timeouts = settings.node_timeout.saturating_mul(settings.validity_factor);
        let limit = settings.ping_period.saturating_add(timeouts);
        settings.validity_factor == 0 || age.saturating_sub(settings.node_timeout) <= limit
    }

    fn plan(&mut self, is_manual: bool) {
        let now = self.ms();
        let rank = if is_manual { 0 } else { self.rank() };
        let delay = match is_manual {
            true => 0,
            false => {
                let random = self.rng.below(DELAY_RANDOM_MS) as u64;
                DELAY_MS + random + rank * DELAY_PER_RANK_MS
            }
        };
        let plan = Plan { planned_at: now, starts_at: now + delay, rank };
        self.election = Election { planned: Some(plan), ..Election::default() };
        self.log(Event::ElectionPlanned { starts_at: plan.starts_at, rank });
        self.tell_siblings();
    }

    /// How many other replicas of my master should go first. Of two with the same data it is the
    /// one with the smaller name: they would only share the votes.
    fn rank(&self) -> u64 {
        if self.breaks(Flaw::NoRank) {
            return 0;
        }
        let Some(master) = self.me().master else { return 0 };
        let (own, id) = (self.data.offset, self.me().id);
        let better = self.nodes.replicas_of(master).filter(|(index, node)| {
            let is_ahead = node.offset > own || (node.offset == own && node.id < id);
            *index != self.me && is_ahead && node.is_fine() && !node.flags.has(Flags::NO_FAILOVER)
        });
        better.count() as u64
    }

    /// The other replicas must know how far this one is.
    fn tell_siblings(&mut self) {
        let (me, Some(master)) = (self.me, self.me().master) else { return };
        let siblings = self.nodes.replicas_of(master).map(|(index, _)| index);
        let siblings: Vec<_> = siblings.filter(|index| *index != me).collect();
        for index in siblings {
            let gossip = self.choose_gossip();
            self.send(index, Body::Pong(gossip));
        }
    }

    /// While it waits, a replica learns of others that are ahead.
    fn wait_for_better(&mut self, mut plan: Plan) -> Plan {
        if self.election.is_asked || self.is_standing_by_hand() {
            return plan;
        }
        let rank = self.rank();
        if rank > plan.rank {
            plan.starts_at += (rank - plan.rank) * DELAY_PER_RANK_MS;
            plan.rank = rank;
            self.election.planned = Some(plan);
        }
        plan
    }

    fn ask_for_votes(&mut self, plan: Plan, is_manual: bool) {
        let Some(epoch) = self.begin_epoch() else { return };
        self.election.epoch = epoch;
        self.election.is_asked = true;
        self.election.voters.clear();
        let planned_at = plan.planned_at;
        self.log(Event::ElectionStarted { epoch, planned_at, is_manual });
        let mut header = self.header();
        header.is_forced = is_manual;
        self.broadcast(Message { header, body: Body::AuthRequest });
        self.save(Save::First);
    }

    fn win_if_elected(&mut self) {
        let quorum = match self.breaks(Flaw::HalfQuorum) {
            true => (self.size() / 2).max(1),
            false => self.quorum(),
        };
        if self.election.voters.len() < quorum {
            return;
        }
        let epoch = self.election.epoch;
        self.log(Event::ElectionWon { epoch, quorum: self.quorum() });
        self.me_mut().config_epoch = epoch;
        self.replace_master();
    }

    /// My master's slots are mine, with the epoch that I have.
    pub(crate) fn replace_master(&mut self) {
        let Some(old) = self.me().master else { return };
        let me = self.me;
        self.make_master(me);
        let slots = std::sync::Arc::clone(&self.nodes[old].slots);
        self.set_owners(&slots, Some(me));
        self.end_manual();
        self.election = Election::default();
        self.update_state();
        self.save(Save::First);
        let left = Box::new(std::mem::take(&mut self.released));
        self.output(Output::FindKeys { left });
        self.tell_all();
    }

    /// `sender` asks for my vote.
    pub(crate) fn consider_vote(&mut self, sender: NodeIndex, header: &Header) {
        if !self.me().is_voter() {
            return;
        }
        let candidate = self.nodes[sender].id;
        match self.refusal(sender, header) {
            Some(reason) => {
                self.log(Event::VoteRefused { candidate, reason });
                // It may be refused for ever if nobody tells it what it missed.
                self.tell_if_behind(sender, header);
            }
            None => self.vote(sender),
        }
    }

    fn refusal(&self, sender: NodeIndex, header: &Header) -> Option<&'static str> {
        if !self.can_promise() {
            return Some("it could not be kept, as nodes.conf cannot be written");
        }
        if header.current_epoch < self.current_epoch {
            return Some("its epoch is over");
        }
        if self.last_vote_epoch >= self.current_epoch {
            return Some("the vote of this epoch is given");
        }
        let asker = &self.nodes[sender];
        let Some(master) = asker.master.filter(|_| asker.is_replica()) else {
            return Some("it is no replica of a known master");
        };
        let master = &self.nodes[master];
        if !master.is_failed() && !header.is_forced {
            return Some("its master works");
        }
        let wait = 2 * self.settings.node_timeout;
        if master.voted_at.is_some_and(|at| self.ms() - at < wait) {
            return Some("a vote about this master was given a moment ago");
        }
        let is_newer = |slot: u16| {
            let owner = self.owner(slot).map(|owner| &self.nodes[owner]);
            owner.is_some_and(|owner| owner.config_epoch > header.config_epoch)
        };
        header.slots.iter().any(is_newer).then_some("a slot of its has a newer owner")
    }

    fn vote(&mut self, sender: NodeIndex) {
        let now = self.ms();
        let master = self.nodes[sender].master.expect("who has none is refused");
        self.nodes[master].voted_at = Some(now);
        self.last_vote_epoch = self.current_epoch;
        let candidate = self.nodes[sender].id;
        self.voted_for = Some(candidate);
        self.log(Event::Voted { candidate, epoch: self.current_epoch });
        self.send_vote(sender);
        self.save(Save::First);
    }

    /// A vote does not name its candidate, so it leaves only when who is at the other end has said
    /// its name: an address may be another node's by now.
    fn send_vote(&mut self, to: NodeIndex) {
        let is_known = self.nodes[to].talk.pongs > 0;
        if is_known || self.breaks(Flaw::VotesUnseen) {
            self.send(to, Body::AuthAck);
        }
    }

    /// A node answers over a new connection: what an election needs may have been lost with the old
    /// one, as a disk that is slow holds packets back. All of it is of the same epoch.
    pub(crate) fn say_again(&mut self, to: NodeIndex) {
        let (now, votes_ms) = (self.ms(), self.votes_ms());
        let counts = |plan: &Plan| now.saturating_sub(plan.starts_at) <= votes_ms;
        let is_asked = self.election.is_asked
            && self.election.epoch == self.current_epoch
            && self.election.planned.as_ref().is_some_and(counts);
        let is_open = self.nodes[to].is_voter() && !self.election.voters.contains(&to);
        if is_asked && is_open && self.me().is_replica() && self.can_promise() {
            let mut header = self.header();
            header.is_forced = self.is_standing_by_hand();
            let message = Message { header, body: Body::AuthRequest };
            self.send_message(to, std::sync::Arc::new(message));
        }
        let is_voted = self.voted_for == Some(self.nodes[to].id);
        if is_voted && self.last_vote_epoch == self.current_epoch && self.can_promise() {
            self.send_vote(to);
        }
    }

    /// `sender` voted for me.
    pub(crate) fn count_vote(&mut self, sender: NodeIndex, header: &Header) {
        // This node may have stood still: its master's clients write again by now.
        self.check_manual();
        if !self.election.is_asked || !self.nodes[sender].is_voter() {
            return;
        }
        let is_current = header.current_epoch >= self.election.epoch;
        if !is_current && !self.breaks(Flaw::AcceptOldAcks) {
            return;
        }
        let is_new = !self.election.voters.contains(&sender);
        if is_new || self.breaks(Flaw::CountAcksTwice) {
            self.election.voters.push(sender);
        }
        self.handle_election();
    }

    /// Another node won the epoch that I asked for: my votes will never come, so I ask again
    /// without waiting for the end of this election.
    pub(crate) fn note_lost_epoch(&mut self, sender: NodeIndex, header: &Header) {
        let is_lost = self.election.is_asked
            && header.master.is_none()
            && header.config_epoch == self.election.epoch
            && self.me().master != Some(sender);
        if is_lost {
            self.election = Election::default();
        }
    }

    /// An operator wants this replica to take over. The caller has checked that it can.
    pub(crate) fn start_manual(&mut self, is_forced: bool) {
        self.end_manual();
        self.election = Election::default();
        let until = self.ms() + MANUAL_MS;
        if is_forced {
            self.manual = Some(Manual::Standing { until, pause: None });
            return;
        }
        self.manual = Some(Manual::Waiting { until, pause: None });
        if let Some(master) = self.me().master {
            self.send(master, Body::ManualStart);
        }
    }

    /// Whether my clients are paused for as long as a replica may try that hears of it now. Towards
    /// the end of the pause one that began to try again would win when they write again.
    pub(crate) fn is_paused_for_long(&self) -> bool {
        match self.manual {
            Some(Manual::Giving { until, .. }) => self.ms() + MANUAL_MS <= until,
            _ => false,
        }
    }

    /// A replica wants my slots: my clients wait until it has everything.
    pub(crate) fn start_giving(&mut self, to: NodeIndex) {
        if !self.me().is_master() || self.nodes[to].master != Some(self.me) {
            return;
        }
        self.end_manual();
        // Longer than the replica may try: it must not win after my clients write again.
        let until = self.ms() + 2 * MANUAL_MS;
        self.manual = Some(Manual::Giving { to, until });
        self.output(Output::PauseWrites);
        self.ping(to);
    }

    /// My master's clients are paused, and this is all that they wrote. What it says last counts: a
    /// script that it could not hold back may have gone on.
    pub(crate) fn note_paused_offset(&mut self, offset: u64) {
        let links = self.links_with_master();
        if let Some(Manual::Waiting { pause, .. }) = &mut self.manual {
            *pause = Some(Pause { offset, links });
        }
    }

    fn links_with_master(&self) -> (Option<u32>, Option<u64>) {
        let Some(master) = self.me().master.map(|master| &self.nodes[master]) else {
            return (None, None);
        };
        (master.link.filter(|link| link.is_up).map(|link| link.number), master.inbound)
    }

    /// Stands once everything is here.
    pub(crate) fn handle_manual_offset(&mut self) {
        if let Some(Manual::Waiting { until, pause: Some(pause) }) = self.manual
            && (self.has_everything(pause) || self.breaks(Flaw::StandsBehind))
        {
            self.manual = Some(Manual::Standing { until, pause: Some(pause) });
        }
    }

    /// Whether this replica follows its master's data up to here. Its offset alone says nothing:
    /// one that has nothing yet counts from zero, as a master does that has just loaded its keys.
    fn has_everything(&self, pause: Pause) -> bool {
        let silence_max = SILENT_PERIODS_MAX.saturating_mul(self.settings.ping_period);
        let is_young = |at: u64| self.ms().saturating_sub(at) <= silence_max;
        pause.offset == self.data.offset && self.data.in_step_at.is_some_and(is_young)
    }

    /// Ends an operator's failover whose time is over, or whose master may not pause its clients
    /// any more.
    pub(crate) fn check_manual(&mut self) {
        let (until, pause) = match self.manual {
            Some(Manual::Giving { until, .. }) => (until, None),
            Some(Manual::Waiting { until, pause } | Manual::Standing { until, pause }) => {
                (until, pause)
            }
            None => return,
        };
        if until < self.ms() {
            self.log(Event::ManualFailoverTimedOut);
            self.end_manual();
        } else if pause.is_some_and(|pause| pause.links != self.links_with_master()) {
            self.log(Event::ManualFailoverLostMaster);
            self.end_manual();
        }
    }

    pub(crate) fn end_manual(&mut self) {
        match self.manual.take() {
            Some(Manual::Giving { .. }) => self.output(Output::Unpause),
            // An election by hand is none by itself.
            Some(Manual::Standing { .. }) => self.election = Election::default(),
            Some(Manual::Waiting { .. }) | None => {}
        }
    }
}
