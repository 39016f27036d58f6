//! The steady work: connections, PING, INFO and hellos, and who is subjectively down.

use std::sync::Arc;
use std::time::Duration;

use store_replica::{Address, Moment};

use crate::core::Core;
use crate::event::EventKind;
use crate::group::Group;
use crate::hello::Hello;
use crate::info::ReportedRole;
use crate::instance::Instance;
use crate::links::{Asked, GroupMember, SlotId, Target};
use crate::output::{Output, Question};

/// What one round of questions needs to know about its group.
struct Cadence<'a> {
    ping_every: Duration,
    info_every: Duration,
    group: &'a Arc<str>,
    /// Where the primary is, and since when.
    configuration: (&'a Address, u64),
}

impl Group {
    /// Connects, pings, asks and greets whoever is due.
    pub(crate) fn keep_in_touch(&mut self, now: Moment, core: &mut Core) {
        // Redis begins when all agree. A vote may be over within a round trip then, and the reports
        // of all replicas would be too old to choose by.
        let in_trouble = self.primary.down_since.is_some() || self.failover.is_some();
        let address = self.address().clone();
        let mut cadence = Cadence {
            ping_every: core.timing.ping_every.min(self.settings.down_after),
            info_every: core.timing.info_every,
            group: &self.name,
            configuration: (&address, self.config_epoch),
        };
        touch(now, core, &mut self.primary, &cadence, || GroupMember::Primary);
        for (address, replica) in &mut self.replicas {
            let is_cut_off = !replica.known.report.is_link_up
                && replica.known.report.role == Some(ReportedRole::Replica);
            cadence.info_every = match in_trouble || is_cut_off {
                true => core.timing.info_every_in_trouble,
                false => core.timing.info_every,
            };
            touch(now, core, replica, &cadence, || GroupMember::Replica(address.clone()));
        }
        for (id, peer) in self.peers.iter_mut().filter(|(_, peer)| !peer.is_displaced) {
            touch(now, core, &mut peer.instance, &cadence, || GroupMember::Peer(id.clone()));
        }
    }

    /// Marks who does not answer, and unmarks who does.
    pub(crate) fn check_down(&mut self, now: Moment, core: &mut Core) {
        let down_after = self.settings.down_after;
        let mut changes = Vec::new();
        let strange = self.is_primary_strange(now, core);
        changes.extend(check(now, core, &mut self.primary, down_after, strange, || {
            GroupMember::Primary
        }));
        for (address, replica) in &mut self.replicas {
            let member = || GroupMember::Replica(address.clone());
            changes.extend(check(now, core, replica, down_after, false, member));
        }
        for (id, peer) in &mut self.peers {
            let member = || GroupMember::Peer(id.clone());
            changes.extend(check(now, core, &mut peer.instance, down_after, false, member));
        }
        for (kind, member) in changes {
            self.tell(core, kind, self.describe(&member));
            if (kind, &member) == (EventKind::SubjectivelyDown, &GroupMember::Primary) {
                self.advise_on_quorum(core);
            }
        }
    }

    /// Nothing will be done about a primary that is down: an operator should know why.
    fn advise_on_quorum(&self, core: &mut Core) {
        let (quorum, known) = (self.settings.quorum, self.peers.len() + 1);
        if known < quorum {
            let name = &self.name;
            core.push(Output::Advise(format!(
                "{name} is down and nobody will replace it: the quorum is {quorum}, and only \
                 {known} sentinels are known. Start more of them, or use SENTINEL SET {name} \
                 quorum {known} on each"
            )));
        }
    }

    /// A primary that says it is a replica, or is another process than before, for too long.
    fn is_primary_strange(&self, now: Moment, core: &Core) -> bool {
        let known = &self.primary.known;
        let role_max = self.settings.down_after + core.timing.info_every * 2;
        let has_other_role = known.report.role == Some(ReportedRole::Replica);
        let reboot_max = self.settings.reboot_down_after;
        let rebooted_at = self.primary.rebooted_at.filter(|_| !reboot_max.is_zero());
        has_other_role && now.since(known.role_since) > role_max
            || rebooted_at.is_some_and(|at| now.since(at) > reboot_max)
    }
}

/// One instance's share of a round.
fn touch(
    now: Moment,
    core: &mut Core,
    instance: &mut Instance,
    cadence: &Cadence<'_>,
    member: impl Fn() -> GroupMember,
) {
    core.reconnect(now, instance.commands);
    if let Some(hellos) = instance.hellos {
        core.reconnect(now, hellos);
    }
    let slot = core.links.get(instance.commands);
    if !slot.is_open() || !slot.has_room() {
        return;
    }
    let is_quiet = now.since(slot.answered_at) > cadence.ping_every;
    let was_pinged = slot.pinged_at.is_some_and(|at| now.since(at) <= cadence.ping_every / 2);
    let is_info_due = instance.hellos.is_some()
        && !slot.is_info_pending
        && (instance.report_age(now).is_none_or(|age| age > cadence.info_every)
            // Behind a new connection there may be a new process, with a new history.
            || instance.known.asked_at < slot.dialed_at);
    let is_hello_due = instance.hello_at.is_none_or(|at| now.since(at) > core.timing.hello_every);
    let target = || Target { group: Arc::clone(cadence.group), member: member() };
    if is_info_due && core.ask(instance.commands, target(), Asked::Info { at: now }, Question::Info)
    {
        core.links.get_mut(instance.commands).is_info_pending = true;
    }
    if is_quiet && !was_pinged {
        core.ping(now, instance.commands, target());
    }
    if is_hello_due && let Some(hello) = cadence.hello(core, instance.commands) {
        core.note_own_address(&hello.address);
        let question = Question::Hello(hello.to_text());
        if core.ask(instance.commands, target(), Asked::Other, question) {
            instance.hello_at = Some(now);
        }
    }
}

impl Cadence<'_> {
    /// What is said over a connection: hosts may see this one under different addresses.
    fn hello(&self, core: &Core, slot: SlotId) -> Option<Hello> {
        let (primary, config_epoch) = self.configuration;
        Some(Hello {
            address: core.own_address(slot)?,
            id: core.id.clone(),
            current_epoch: core.current_epoch,
            group: self.group.to_string(),
            primary: core.announced(primary),
            config_epoch,
        })
    }
}

/// Whether an instance went down or came back. Silent connections are closed on the way.
fn check(
    now: Moment,
    core: &mut Core,
    instance: &mut Instance,
    down_after: Duration,
    is_strange: bool,
    member: impl FnOnce() -> GroupMember,
) -> Option<(EventKind, GroupMember)> {
    close_silent(now, core, instance, down_after);
    let slot = core.links.get(instance.commands);
    let silence = match slot.waiting_since {
        Some(since) => now.since(since),
        None if !instance.is_connected(core) => now.since(slot.available_at),
        None => Duration::ZERO,
    };
    let is_down = silence > down_after || is_strange;
    match (is_down, instance.down_since) {
        (true, None) => {
            instance.down_since = Some(now);
            Some((EventKind::SubjectivelyDown, member()))
        }
        (false, Some(_)) => {
            instance.down_since = None;
            instance.is_kill_sent = false;
            Some((EventKind::SubjectivelyUp, member()))
        }
        _ => None,
    }
}

/// A connection may be dead without a word: one that is old enough and silent is opened anew.
fn close_silent(now: Moment, core: &mut Core, instance: &Instance, down_after: Duration) {
    let age_min = core.timing.link_age_min;
    let is_old = |at: Option<Moment>| at.is_some_and(|at| now.since(at) > age_min);
    let slot = core.links.get(instance.commands);
    let is_unanswered = slot.waiting_since.is_some_and(|at| now.since(at) > down_after / 2);
    let is_silent = is_unanswered && now.since(slot.answered_at) > down_after / 2;
    if slot.link().is_some() && is_old(slot.dialed_at) && is_silent {
        core.close(instance.commands);
    }
    let Some(hellos) = instance.hellos else { return };
    let slot = core.links.get(hellos);
    let is_silent = now.since(slot.heard_at) > core.timing.hello_every * 3;
    if slot.link().is_some() && is_old(slot.dialed_at) && is_silent {
        core.close(hellos);
    }
}
