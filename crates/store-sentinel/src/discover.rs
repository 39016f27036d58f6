//! What INFO and hellos teach: replicas, sentinels, roles, and newer configurations.

use std::time::Duration;

use store_replica::{Address, Moment};

use crate::core::Core;
use crate::event::EventKind;
use crate::failover::{FailoverStep, ScriptRole};
use crate::group::{Group, PEERS_MAX};
use crate::hello::Hello;
use crate::info::{Report, ReportedRole};
use crate::instance::{Instance, Peer, Reconfiguration};
use crate::links::GroupMember;
use crate::output::Output;
use crate::settings::RunId;

/// A sentinel that is back where it was so soon has not moved: there are two.
const BACK_WITHIN: Duration = Duration::from_secs(60);
/// A sentinel that has not said for so long that it is where it was is not there: hellos come every
/// two seconds.
const GONE_AFTER: Duration = Duration::from_secs(10);

impl Group {
    /// A report that was asked for at `asked_at`.
    pub(crate) fn take_report(
        &mut self,
        now: Moment,
        core: &mut Core,
        asked_at: Moment,
        member: &GroupMember,
        report: Report,
    ) {
        let instance = match member {
            GroupMember::Primary => &mut self.primary,
            GroupMember::Replica(address) => match self.replicas.get_mut(address) {
                Some(replica) => replica,
                None => return,
            },
            GroupMember::Peer(_) => return,
        };
        let is_primary = *member == GroupMember::Primary;
        let before = instance.known.report.clone();
        let changes = learn(now, asked_at, instance, &report, is_primary);
        match is_primary {
            true => self.learn_history(asked_at, &report),
            false => self.doubt_history(core, asked_at, &before, &report),
        }
        for kind in changes {
            self.tell(core, kind, self.describe(member));
        }
        if is_primary {
            self.advise_on_role(core, &report);
            for address in report.replicas {
                if core.may_reach(&address) && self.add_replica(now, core, address.clone()) {
                    core.mark_changed();
                    self.tell(
                        core,
                        EventKind::FoundReplica,
                        self.describe(&GroupMember::Replica(address)),
                    );
                }
            }
        }
        // Time stood still: nothing is done until enough has been seen again.
        if let GroupMember::Replica(address) = member
            && !core.is_tilted
        {
            self.correct_replica(now, core, address.clone());
        }
    }

    /// The address of a replica was given for that of its primary, most likely.
    fn advise_on_role(&mut self, core: &mut Core, report: &Report) {
        let is_replica = report.role == Some(ReportedRole::Replica);
        let is_news = is_replica && !std::mem::replace(&mut self.is_primary_a_replica, is_replica);
        self.is_primary_a_replica = is_replica;
        if let Some(primary) = report.primary.as_ref().filter(|_| is_news) {
            let (name, at) = (&self.name, &self.primary.address);
            core.push(Output::Advise(format!(
                "{name} at {at} says that it is a replica of {primary}. If it was never a master, \
                 use SENTINEL REMOVE {name} and SENTINEL MONITOR {name} with the master's address"
            )));
        }
    }

    /// Keeps what a server answered to INFO, for whoever asks this sentinel.
    pub(crate) fn keep_info(&mut self, member: &GroupMember, text: &[u8]) {
        /// Longer answers are cut: nobody but an operator reads them.
        const KEPT_MAX: usize = 64 * 1024;
        let instance = match member {
            GroupMember::Primary => Some(&mut self.primary),
            GroupMember::Replica(address) => self.replicas.get_mut(address),
            GroupMember::Peer(_) => None,
        };
        if let Some(instance) = instance {
            let text = &text[..text.len().min(KEPT_MAX)];
            instance.known.text = String::from_utf8_lossy(text).into_owned();
        }
    }

    /// What a replica's report leads to.
    fn correct_replica(&mut self, now: Moment, core: &mut Core, address: Address) {
        match self.replicas[&address].known.report.role {
            Some(ReportedRole::Primary) => {
                let is_promoted = matches!(
                    self.failover_step(),
                    Some(FailoverStep::WaitPromotion { to }) if *to == address
                );
                match is_promoted {
                    true => self.finish_promotion(now, core, address),
                    false => self.convert_to_replica(now, core, &address),
                }
            }
            Some(ReportedRole::Replica) => {
                self.follow_reconfiguration(core, &address);
                self.fix_replica(now, core, &address);
            }
            None => {}
        }
    }

    /// A replica that says it is a primary: an old one that came back. Others may know of a newer
    /// configuration, so it gets a few hellos' time.
    fn convert_to_replica(&mut self, now: Moment, core: &mut Core, address: &Address) {
        let wait = core.timing.hello_every * 4;
        let replica = &self.replicas[address];
        let is_steady = now.since(replica.known.role_since) > wait && replica.is_up_for(now, wait);
        if is_steady && !self.is_promoting(address) && self.may_correct(now, core) {
            self.correct(core, address, EventKind::ConvertToReplica);
        }
    }

    /// A replica that follows somebody else.
    fn fix_replica(&mut self, now: Moment, core: &mut Core, address: &Address) {
        let wait = self.settings.failover_timeout;
        let replica = &self.replicas[address];
        let follows = replica.known.report.primary.as_ref();
        let is_wrong = follows.is_some_and(|primary| !core.is_same(primary, &self.primary.address));
        let is_steady =
            now.since(replica.known.primary_since) > wait && replica.is_up_for(now, wait);
        if is_wrong && is_steady && self.may_correct(now, core) {
            self.correct(core, address, EventKind::FixReplica);
        }
    }

    fn is_promoting(&self, address: &Address) -> bool {
        self.failover_step().and_then(FailoverStep::promoted) == Some(address)
    }

    /// Only a primary that is well is worth following, and not one that is being replaced: it may
    /// come back while the others are turned to the new one.
    fn may_correct(&self, now: Moment, core: &Core) -> bool {
        let is_sane = self.primary.is_sane_primary(now, core.timing.info_every);
        is_sane && self.down_agreed_since.is_none() && self.failover.is_none()
    }

    fn correct(&mut self, core: &mut Core, address: &Address, kind: EventKind) {
        let primary = self.primary.address.clone();
        if self.tell_to_follow(core, address, Some(primary)) {
            self.tell(core, kind, self.describe(&GroupMember::Replica(address.clone())));
        }
    }

    /// A replica that was told to follow the new primary does so.
    fn follow_reconfiguration(&mut self, core: &mut Core, address: &Address) {
        let Some(FailoverStep::Reconfigure { to }) = self.failover_step() else { return };
        let to = to.clone();
        let Some(replica) = self.replicas.get_mut(address) else { return };
        let report = &replica.known.report;
        let mut kinds = Vec::new();
        let is_following =
            report.primary.as_ref().is_some_and(|primary| core.is_same(primary, &to));
        if matches!(replica.reconfiguration, Reconfiguration::Sent { .. }) && is_following {
            replica.reconfiguration = Reconfiguration::Begun;
            kinds.push(EventKind::ReconfigureBegun);
        }
        if replica.reconfiguration == Reconfiguration::Begun && report.is_link_up {
            replica.reconfiguration = Reconfiguration::Done;
            kinds.push(EventKind::ReconfigureDone);
        }
        for kind in kinds {
            self.tell(core, kind, self.describe(&GroupMember::Replica(address.clone())));
        }
    }

    /// A sentinel that is not known under this id is at this address. Whoever was there before has
    /// lost its file, most likely, and goes: so a majority stays what it was.
    pub(crate) fn find_peer(&mut self, now: Moment, core: &mut Core, id: &RunId, at: &Address) {
        let is_ghost =
            |peer: &&Peer| core.is_same(&peer.instance.address, at) && !peer.is_displaced;
        if let Some(ghost) = self.peers.values().find(is_ghost).map(|peer| peer.id.clone()) {
            let text = self.describe(&GroupMember::Peer(ghost.clone()));
            self.tell(core, EventKind::SentinelInvalidAddress, text);
            self.remove_peer(core, &ghost);
        }
        if self.peers.len() < PEERS_MAX {
            self.put_peer(now, core, id, at);
            let text = self.describe(&GroupMember::Peer(id.clone()));
            self.tell(core, EventKind::FoundSentinel, text);
            self.settle_address(core, id, at);
        }
    }

    /// A sentinel that is known under this id is at this address, where it was or where it moved.
    /// Whoever is there too, by its own account, still counts for the majority: one sentinel that
    /// answers for two would vote twice, and one that is dropped makes a majority of fewer.
    pub(crate) fn move_peer(&mut self, now: Moment, core: &mut Core, id: &RunId, at: &Address) {
        let Some(peer) = self.peers.get(id) else { return };
        let (from, before) = (peer.instance.address.clone(), peer.moved_from.clone());
        if from != *at {
            let Address { host, port } = at;
            let text =
                format!("{} ip {host} port {port}", self.describe(&GroupMember::Peer(id.clone())));
            self.remove_peer(core, id);
            self.put_peer(now, core, id, at);
            if before.is_some_and(|(place, moved)| place == *at && now.since(moved) < BACK_WITHIN) {
                core.advise_on_alternation(id, [&from, at]);
            }
            if let Some(peer) = self.peers.get_mut(id) {
                peer.moved_from = Some((from, now));
            }
            self.tell(core, EventKind::SentinelAddressSwitch, text);
        } else if !peer.is_displaced || core.is_own(at) || self.is_taken(now, core, id, at) {
            return;
        } else if let Some(peer) = self.peers.get_mut(id) {
            peer.is_displaced = false;
        }
        self.settle_address(core, id, at);
    }

    /// Whether another sentinel than this one still says that it is there.
    fn is_taken(&self, now: Moment, core: &Core, id: &RunId, at: &Address) -> bool {
        let is_there = |peer: &Peer| {
            core.is_same(&peer.instance.address, at)
                && !peer.is_displaced
                && now.since(peer.heard_at) < GONE_AFTER
        };
        self.peers.values().any(|peer| peer.id != *id && is_there(peer))
    }

    /// Nobody else is asked at the address of a sentinel, and nobody where this one is itself.
    fn settle_address(&mut self, core: &mut Core, id: &RunId, at: &Address) {
        let owner = (!core.is_own(at)).then_some(id);
        self.displace_at(core, at, owner);
    }

    /// Nobody who says that it is there is asked there any more, but the one who is.
    pub(crate) fn displace_at(&mut self, core: &mut Core, at: &Address, owner: Option<&RunId>) {
        for peer in self.peers.values_mut().filter(|peer| Some(&peer.id) != owner) {
            if core.is_same(&peer.instance.address, at) && peer.displace(core) {
                core.advise_on_displaced(&peer.id, at);
            }
        }
    }

    fn put_peer(&mut self, now: Moment, core: &mut Core, id: &RunId, address: &Address) {
        let peer = Peer::new(now, core, id.clone(), address.clone());
        self.peers.insert(id.clone(), peer);
        core.mark_changed();
    }

    pub(crate) fn remove_peer(&mut self, core: &mut Core, id: &RunId) {
        if let Some(peer) = self.peers.remove(id) {
            peer.instance.release(core);
            core.mark_changed();
        }
    }

    /// The configuration of a greater epoch wins.
    pub(crate) fn take_configuration(&mut self, now: Moment, core: &mut Core, hello: &Hello) {
        if hello.config_epoch <= self.config_epoch {
            return;
        }
        self.config_epoch = hello.config_epoch;
        core.mark_changed();
        if core.is_same(&hello.primary, &self.primary.address) {
            // A failover of an older epoch that runs here must not end under this one.
            self.failover = self.failover.take().filter(|f| f.epoch > hello.config_epoch);
            return;
        }
        self.tell(
            core,
            EventKind::ConfigUpdateFrom,
            self.describe(&GroupMember::Peer(hello.id.clone())),
        );
        self.run_reconfig_script(core, ScriptRole::Observer, &hello.primary);
        self.switch_to(now, core, hello.primary.clone());
    }
}

/// Takes a report down. What is to be told about it.
fn learn(
    now: Moment,
    asked_at: Moment,
    instance: &mut Instance,
    report: &Report,
    is_primary: bool,
) -> Vec<EventKind> {
    let mut kinds = Vec::new();
    let old = &instance.known.report;
    if report.run_id.is_some() && old.run_id.is_some() && report.run_id != old.run_id {
        kinds.push(EventKind::Reboot);
        instance.rebooted_at = is_primary.then_some(now);
    }
    if report.role != old.role {
        instance.known.role_since = now;
        instance.known.primary_since = now;
        let expected = if is_primary { ReportedRole::Primary } else { ReportedRole::Replica };
        match report.role == Some(expected) {
            true if old.role.is_none() => {}
            true => kinds.push(EventKind::RoleChanged),
            false => kinds.push(EventKind::RoleUnexpected),
        }
    }
    if report.primary != old.primary {
        instance.known.primary_since = now;
    }
    instance.known.asked_at = Some(asked_at);
    let run_id = report.run_id.clone().or_else(|| old.run_id.clone());
    instance.known.report = Report { run_id, ..report.clone() };
    instance.known.report.replicas = Vec::new();
    kinds
}
