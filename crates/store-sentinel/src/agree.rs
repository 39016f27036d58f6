//! What sentinels decide together: whether a primary is down, and who leads its failover.

use std::collections::BTreeMap;

use store_replica::{Address, Moment};

use crate::core::Core;
use crate::event::EventKind;
use crate::group::Group;
use crate::links::{Asked, GroupMember};
use crate::output::{DownAnswer, DownQuestion, Question, Vote};
use crate::settings::RunId;

impl Group {
    /// The primary is down for all once a quorum of sentinels says so. What they said is forgotten
    /// after a while, and before it is counted: in TILT nobody was asked.
    pub(crate) fn check_agreement(&mut self, now: Moment, core: &mut Core) {
        let age_max = core.timing.ask_every * 5;
        for peer in self.peers.values_mut() {
            if peer.answered_at.is_some_and(|at| now.since(at) > age_max) {
                (peer.answered_at, peer.says_down, peer.vote) = (None, false, None);
            }
        }
        let others = self.peers.values().filter(|peer| peer.says_down).count();
        let is_down = self.primary.down_since.is_some() && others + 1 >= self.settings.quorum;
        match (is_down, self.down_agreed_since) {
            (true, None) => {
                self.down_agreed_since = Some(now);
                let quorum = self.settings.quorum;
                let text = format!(
                    "{} #quorum {}/{quorum}",
                    self.describe(&GroupMember::Primary),
                    others + 1
                );
                self.tell(core, EventKind::ObjectivelyDown, text);
            }
            (false, Some(_)) => {
                self.down_agreed_since = None;
                self.tell(core, EventKind::ObjectivelyUp, self.describe(&GroupMember::Primary));
            }
            _ => {}
        }
    }

    /// Asks the others about a primary that is down here, and for their votes when this sentinel
    /// wants to lead.
    pub(crate) fn ask_others(&mut self, now: Moment, core: &mut Core) {
        let candidate = self.failover.as_ref().map(|_| core.id.clone());
        let question = DownQuestion {
            address: self.primary.address.clone(),
            // Votes count for the epoch of this failover alone. An epoch that came up meanwhile is
            // somebody else's.
            epoch: self.failover_epoch().unwrap_or(core.current_epoch),
            candidate,
        };
        let is_down = self.primary.down_since.is_some();
        let every = core.timing.ask_every;
        // Another group may use the connection of one whose address somebody else has here.
        for (id, peer) in self.peers.iter_mut().filter(|(_, peer)| !peer.is_displaced) {
            let is_due = peer.asked_at.is_none_or(|at| now.since(at) >= every);
            let has_room = core.links.get(peer.instance.commands).has_room();
            // Who asks itself would count its own vote twice.
            if !is_down || !is_due || !has_room || core.is_own(&peer.instance.address) {
                continue;
            }
            let target = crate::links::Target {
                group: self.name.clone(),
                member: GroupMember::Peer(id.clone()),
            };
            let asked = Asked::IsDown { address: question.address.clone() };
            let question = Question::IsDown(question.clone());
            if core.ask(peer.instance.commands, target, asked, question) {
                peer.asked_at = Some(now);
            }
        }
    }

    /// Another sentinel answered. What it says about another primary than the present one is old.
    pub(crate) fn take_answer(
        &mut self,
        now: Moment,
        id: &RunId,
        address: &Address,
        answer: DownAnswer,
    ) {
        let is_current = *address == self.primary.address;
        let Some(peer) = self.peers.get_mut(id).filter(|_| is_current) else { return };
        peer.answered_at = Some(now);
        peer.says_down = answer.is_down;
        if answer.vote.is_some() {
            peer.vote = answer.vote;
        }
    }

    /// Another sentinel asks.
    pub(crate) fn answer(
        &mut self,
        now: Moment,
        core: &mut Core,
        question: DownQuestion,
    ) -> DownAnswer {
        let is_down = self.primary.down_since.is_some() && !core.is_tilted;
        let candidate = question.candidate.filter(|id| {
            core.believes(question.epoch, || match self.peers.get(id) {
                Some(peer) => format!("the sentinel {id} at {}", peer.instance.address),
                None => format!("a sentinel with the id {id}"),
            })
        });
        let vote = candidate.and_then(|id| self.vote(now, core, question.epoch, id));
        DownAnswer { is_down, vote }
    }

    /// Somebody knows a greater epoch.
    pub(crate) fn raise_epoch(&self, core: &mut Core, epoch: u64) {
        if epoch > core.current_epoch {
            core.current_epoch = epoch;
            core.mark_changed();
            self.tell(core, EventKind::NewEpoch, epoch.to_string());
        }
    }

    /// One vote per epoch, for whoever asks first; it is kept before it is told.
    fn vote(&mut self, now: Moment, core: &mut Core, epoch: u64, candidate: RunId) -> Option<Vote> {
        self.raise_epoch(core, epoch);
        if core.has_double() {
            return None;
        }
        if self.leader_epoch < epoch && core.current_epoch <= epoch {
            self.leader_epoch = epoch;
            core.mark_changed();
            self.tell(core, EventKind::Voted, format!("{candidate} {epoch}"));
            if candidate != core.id {
                // Whoever has this vote gets time to finish.
                self.tried_at = Some(now + core.draw.span(core.timing.desync_max));
            }
            self.leader = Some(candidate);
        }
        let leader = self.leader.clone()?;
        Some(Vote { leader, epoch: self.leader_epoch })
    }

    /// Who leads the failover of `epoch`: a majority of all known sentinels, and a quorum, voted
    /// for it. A sentinel that has not voted yet joins the largest party, or founds its own.
    pub(crate) fn find_leader(
        &mut self,
        now: Moment,
        core: &mut Core,
        epoch: u64,
    ) -> Option<RunId> {
        let mut votes: BTreeMap<RunId, usize> = BTreeMap::new();
        let given = self.peers.values().filter_map(|peer| peer.vote.as_ref());
        for vote in given.filter(|vote| vote.epoch == epoch) {
            *votes.entry(vote.leader.clone()).or_default() += 1;
        }
        let first = votes.iter().max_by_key(|(_, count)| **count).map(|(id, _)| id.clone());
        let candidate = first.unwrap_or_else(|| core.id.clone());
        let own = self.vote(now, core, epoch, candidate).filter(|vote| vote.epoch == epoch);
        if let Some(vote) = own {
            *votes.entry(vote.leader).or_default() += 1;
        }
        let voters = self.peers.len() + 1;
        let needed = (voters / 2 + 1).max(self.settings.quorum);
        votes.into_iter().find(|(_, count)| *count >= needed).map(|(id, _)| id)
    }
}
