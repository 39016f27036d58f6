//! A failover, led by one sentinel.

use std::time::Duration;

use store_replica::{Address, Moment};

use crate::core::Core;
use crate::epoch;
use crate::event::EventKind;
use crate::group::Group;
use crate::instance::Reconfiguration;
use crate::links::{Asked, GroupMember, Target};
use crate::output::{Output, Question};

/// How far a failover is.
///
/// ```text
/// WaitStart ─ elected ─► SelectReplica ─► SendPromotion ─► WaitPromotion ─ INFO says master ─►
///    Reconfigure: the others follow, parallel-syncs at a time ─► UpdateConfig ─► over
/// ```
/// Each step before the promotion ends in nothing when it takes too long; after it there is no way
/// back, because the new address has been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailoverStep {
    /// It asks for votes.
    WaitStart,
    /// It was elected.
    SelectReplica,
    /// This one is to be promoted.
    SendPromotion {
        /// Which.
        to: Address,
    },
    /// It was told, and has not said that it is a primary.
    WaitPromotion {
        /// Which.
        to: Address,
    },
    /// It is the primary; the others follow one by one.
    Reconfigure {
        /// Which.
        to: Address,
    },
    /// All that could be done is done.
    UpdateConfig {
        /// Which.
        to: Address,
    },
}

/// Why a failover that an operator asked for did not begin. The text is Redis's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailoverRefused {
    /// No group has this name.
    #[error("ERR No such master with that name")]
    UnknownName,
    /// One runs.
    #[error("INPROG Failover already in progress")]
    Running,
    /// Nobody could take over.
    #[error("NOGOODSLAVE No suitable replica to promote")]
    NoGoodReplica,
    /// The epochs are used up.
    #[error(
        "NOEPOCH No epoch is left for a failover. Stop all sentinels, set all epochs in their \
         files to 0 and start them again"
    )]
    NoEpoch,
}

/// What this sentinel had to do with a failover, as scripts are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptRole {
    Leader,
    Observer,
}

#[derive(Clone, Debug)]
pub(crate) struct Failover {
    pub(crate) step: FailoverStep,
    pub(crate) epoch: u64,
    /// From here votes are waited for. It may lie a little ahead.
    started_at: Moment,
    changed_at: Moment,
    /// An operator asked for it: nobody votes.
    is_forced: bool,
}

impl FailoverStep {
    /// The replica that is or was promoted.
    pub(crate) fn promoted(&self) -> Option<&Address> {
        match self {
            Self::WaitStart | Self::SelectReplica => None,
            Self::SendPromotion { to }
            | Self::WaitPromotion { to }
            | Self::Reconfigure { to }
            | Self::UpdateConfig { to } => Some(to),
        }
    }
}

impl Group {
    /// Whether an operator asked for the failover that runs.
    pub(crate) fn is_failover_forced(&self) -> bool {
        self.failover.as_ref().is_some_and(|failover| failover.is_forced)
    }

    /// Begins a failover when the primary is down for all and nobody has tried lately.
    pub(crate) fn start_failover_if_needed(&mut self, now: Moment, core: &mut Core) {
        let rest = self.settings.failover_timeout * 2;
        let is_early = self.tried_at.is_some_and(|at| now.since(at) < rest);
        let is_needed = self.down_agreed_since.is_some() && self.failover.is_none();
        let is_early = is_early || core.has_double();
        if is_needed
            && !is_early
            && let Err(refused) = self.start_failover(now, core, false)
        {
            // Not with every tick.
            self.tried_at = Some(now);
            let name = &self.name;
            core.push(Output::Advise(format!("nobody can replace {name}: {refused}")));
        }
    }

    /// SENTINEL FAILOVER: without votes, because an operator decided.
    pub(crate) fn force_failover(
        &mut self,
        now: Moment,
        core: &mut Core,
    ) -> Result<(), FailoverRefused> {
        if self.failover.is_some() {
            return Err(FailoverRefused::Running);
        }
        self.choose_replica(now, core).ok_or(FailoverRefused::NoGoodReplica)?;
        self.start_failover(now, core, true)
    }

    fn start_failover(
        &mut self,
        now: Moment,
        core: &mut Core,
        is_forced: bool,
    ) -> Result<(), FailoverRefused> {
        let epoch = epoch::after(core.current_epoch).ok_or(FailoverRefused::NoEpoch)?;
        self.raise_epoch(core, epoch);
        self.tell(core, EventKind::TryFailover, self.describe(&GroupMember::Primary));
        let started_at = now + core.draw.span(core.timing.desync_max);
        self.tried_at = Some(started_at);
        let step = FailoverStep::WaitStart;
        self.failover = Some(Failover { step, epoch, started_at, changed_at: now, is_forced });
        // Everybody is asked for a vote as soon as the file has the epoch.
        self.peers.values_mut().for_each(|peer| peer.asked_at = None);
        Ok(())
    }

    /// One step, when it can be taken.
    pub(crate) fn continue_failover(&mut self, now: Moment, core: &mut Core) {
        let Some(failover) = &self.failover else { return };
        let is_late = now.since(failover.changed_at) > self.settings.failover_timeout;
        match failover.step.clone() {
            FailoverStep::WaitStart => self.wait_for_votes(now, core),
            FailoverStep::SelectReplica => self.select_replica(now, core),
            FailoverStep::SendPromotion { to } => self.send_promotion(now, core, to, is_late),
            FailoverStep::WaitPromotion { .. } if is_late => {
                self.abort_failover(core, EventKind::PromotionTimedOut);
            }
            FailoverStep::WaitPromotion { .. } => {}
            FailoverStep::Reconfigure { to } => self.reconfigure(now, core, &to, is_late),
            FailoverStep::UpdateConfig { to } => self.switch_to(now, core, to),
        }
    }

    fn advance(&mut self, now: Moment, step: FailoverStep) {
        if let Some(failover) = &mut self.failover {
            failover.step = step;
            failover.changed_at = now;
        }
    }

    fn abort_failover(&mut self, core: &mut Core, why: EventKind) {
        self.tell(core, why, self.describe(&GroupMember::Primary));
        self.failover = None;
    }

    fn wait_for_votes(&mut self, now: Moment, core: &mut Core) {
        let Some(failover) = self.failover.clone() else { return };
        let leader = self.find_leader(now, core, failover.epoch);
        // Votes for a copy of this sentinel look like votes for this one.
        let is_elected = leader.as_ref() == Some(&core.id) && !core.has_double();
        if !is_elected && !failover.is_forced {
            let wait_max = core.timing.election_max.min(self.settings.failover_timeout);
            if now.since(failover.started_at) > wait_max {
                self.abort_failover(core, EventKind::NotElected);
            }
            return;
        }
        self.tell(core, EventKind::ElectedLeader, self.describe(&GroupMember::Primary));
        if core.simulated.crash_after_election {
            core.push_when_saved(Output::Crash);
        }
        self.advance(now, FailoverStep::SelectReplica);
        self.tell(core, EventKind::SelectReplica, self.describe(&GroupMember::Primary));
    }

    fn select_replica(&mut self, now: Moment, core: &mut Core) {
        let Some(to) = self.choose_replica(now, core) else {
            return self.abort_failover(core, EventKind::NoGoodReplica);
        };
        let text = self.describe(&GroupMember::Replica(to.clone()));
        self.tell(core, EventKind::SelectedReplica, text.clone());
        self.tell(core, EventKind::SendPromotion, text);
        for replica in self.replicas.values_mut() {
            replica.reconfiguration = Reconfiguration::Waiting;
        }
        self.advance(now, FailoverStep::SendPromotion { to });
    }

    fn send_promotion(&mut self, now: Moment, core: &mut Core, to: Address, is_late: bool) {
        if self.tell_to_follow(core, &to, None) {
            self.tell(
                core,
                EventKind::WaitPromotion,
                self.describe(&GroupMember::Replica(to.clone())),
            );
            self.advance(now, FailoverStep::WaitPromotion { to });
        } else if is_late {
            self.abort_failover(core, EventKind::PromotionTimedOut);
        }
    }

    /// The promoted replica says that it is a primary: from here on this is the configuration.
    pub(crate) fn finish_promotion(&mut self, now: Moment, core: &mut Core, to: Address) {
        let Some(failover) = &self.failover else { return };
        self.config_epoch = failover.epoch;
        core.mark_changed();
        if core.simulated.crash_after_promotion {
            core.push_when_saved(Output::Crash);
        }
        self.tell(
            core,
            EventKind::PromotedReplica,
            self.describe(&GroupMember::Replica(to.clone())),
        );
        self.tell(core, EventKind::ReconfigureReplicas, self.describe(&GroupMember::Primary));
        self.run_reconfig_script(core, ScriptRole::Leader, &to);
        self.advance(now, FailoverStep::Reconfigure { to });
        self.hurry_hellos();
    }

    /// Has clients told where the primary is from now on.
    pub(crate) fn run_reconfig_script(&self, core: &mut Core, role: ScriptRole, to: &Address) {
        let Some(path) = &self.settings.reconfig_script else { return };
        let role = match role {
            ScriptRole::Leader => "leader",
            ScriptRole::Observer => "observer",
        };
        let from = &self.primary.address;
        let ports = [from.port.to_string(), to.port.to_string()];
        let words =
            [path.as_str(), &self.name, role, "start", &from.host, &ports[0], &to.host, &ports[1]];
        core.run_script(words.map(str::to_owned).into());
    }

    fn reconfigure(&mut self, now: Moment, core: &mut Core, to: &Address, is_late: bool) {
        self.reconfigure_next(now, core, to);
        let is_open = |address: &Address| {
            let replica = &self.replicas[address];
            replica.down_since.is_none() && replica.reconfiguration != Reconfiguration::Done
        };
        let is_finished = !self.replicas.keys().any(|address| address != to && is_open(address));
        if !is_finished && !is_late {
            return;
        }
        if !is_finished {
            self.tell(core, EventKind::FailoverEndForTimeout, self.describe(&GroupMember::Primary));
            self.reconfigure_the_rest(core, to);
        }
        self.tell(core, EventKind::FailoverEnd, self.describe(&GroupMember::Primary));
        self.advance(now, FailoverStep::UpdateConfig { to: to.clone() });
    }

    /// So many at a time as the new primary may serve beside its clients.
    fn reconfigure_next(&mut self, now: Moment, core: &mut Core, to: &Address) {
        let wait_max: Duration = core.timing.reconfigure_max;
        let mut timed_out = Vec::new();
        let mut running = 0;
        for (address, replica) in &mut self.replicas {
            match replica.reconfiguration {
                Reconfiguration::Sent { at } if now.since(at) > wait_max => {
                    replica.reconfiguration = Reconfiguration::Done;
                    timed_out.push(address.clone());
                }
                Reconfiguration::Sent { .. } | Reconfiguration::Begun => running += 1,
                Reconfiguration::Waiting | Reconfiguration::Done => {}
            }
        }
        for address in timed_out {
            self.tell(
                core,
                EventKind::ReconfigureTimedOut,
                self.describe(&GroupMember::Replica(address)),
            );
        }
        for address in self.waiting_replicas(to) {
            if running >= self.settings.parallel_syncs {
                return;
            }
            if self.tell_to_follow(core, &address, Some(to.clone())) {
                running += 1;
                let text = self.describe(&GroupMember::Replica(address.clone()));
                self.tell(core, EventKind::ReconfigureSent, text);
                if let Some(replica) = self.replicas.get_mut(&address) {
                    replica.reconfiguration = Reconfiguration::Sent { at: now };
                }
            }
        }
    }

    fn waiting_replicas(&self, to: &Address) -> Vec<Address> {
        let is_waiting = |address: &&Address| {
            *address != to && self.replicas[*address].reconfiguration == Reconfiguration::Waiting
        };
        self.replicas.keys().filter(is_waiting).cloned().collect()
    }

    /// The time is up: whoever is left is told at once, and what they make of it is not waited for.
    fn reconfigure_the_rest(&mut self, core: &mut Core, to: &Address) {
        for address in self.waiting_replicas(to) {
            if self.tell_to_follow(core, &address, Some(to.clone())) {
                self.tell(
                    core,
                    EventKind::ReconfigureSentLate,
                    self.describe(&GroupMember::Replica(address)),
                );
            }
        }
    }

    /// SLAVEOF to one of the replicas. Whether it was sent.
    pub(crate) fn tell_to_follow(
        &self,
        core: &mut Core,
        address: &Address,
        primary: Option<Address>,
    ) -> bool {
        let Some(replica) = self.replicas.get(address) else { return false };
        let target =
            Target { group: self.name.clone(), member: GroupMember::Replica(address.clone()) };
        let has_room = core.links.get(replica.commands).has_room();
        has_room && {
            let primary = primary.map(|primary| core.announced(&primary));
            core.ask(replica.commands, target, Asked::Other, Question::Follow(primary))
        }
    }

    /// The decisions of one tick.
    pub(crate) fn decide(&mut self, now: Moment, core: &mut Core) {
        self.check_down(now, core);
        self.check_agreement(now, core);
        self.start_failover_if_needed(now, core);
        self.continue_failover(now, core);
        self.ask_others(now, core);
    }
}
