//! Whatever a sentinel watches: a primary, a replica or another sentinel.

use std::time::Duration;

use store_replica::{Address, Moment};

use crate::core::Core;
use crate::info::{Report, ReportedRole};
use crate::links::{SlotId, SlotKind};
use crate::output::Vote;
use crate::settings::{Access, RunId, usable};

/// How far a replica is in following a new primary.
///
/// ```text
/// Waiting ─SLAVEOF─► Sent ─INFO names the new primary─► Begun ─its link is up─► Done
///                      └──────────── says nothing of it for 10 s ────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reconfiguration {
    Waiting,
    Sent { at: Moment },
    Begun,
    Done,
}

/// What a server's reports have shown.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// When the last report was asked for: what it says is at least as old.
    pub(crate) asked_at: Option<Moment>,
    pub(crate) report: Report,
    /// The last INFO as it came, for whoever asks this sentinel for it.
    pub(crate) text: String,
    pub(crate) role_since: Moment,
    /// Since when it follows whom it follows.
    pub(crate) primary_since: Moment,
}

/// One server or sentinel.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) address: Address,
    pub(crate) commands: SlotId,
    pub(crate) hellos: Option<SlotId>,
    pub(crate) hello_at: Option<Moment>,
    pub(crate) down_since: Option<Moment>,
    pub(crate) is_kill_sent: bool,
    pub(crate) rebooted_at: Option<Moment>,
    pub(crate) known: Known,
    pub(crate) reconfiguration: Reconfiguration,
}

impl Instance {
    /// A primary or a replica.
    pub(crate) fn server(now: Moment, core: &mut Core, address: Address, access: Access) -> Self {
        let mut slot = |kind| core.links.create(kind, now, address.clone(), access.clone());
        let (commands, hellos) = (slot(SlotKind::Commands), slot(SlotKind::Hellos));
        Self::new(now, address, commands, Some(hellos))
    }

    fn new(now: Moment, address: Address, commands: SlotId, hellos: Option<SlotId>) -> Self {
        Self {
            address,
            commands,
            hellos,
            hello_at: None,
            down_since: None,
            is_kill_sent: false,
            rebooted_at: None,
            known: Known {
                asked_at: None,
                report: Report::parse(""),
                text: String::new(),
                role_since: now,
                primary_since: now,
            },
            reconfiguration: Reconfiguration::Waiting,
        }
    }

    pub(crate) fn release(&self, core: &mut Core) {
        core.release(self.commands);
        if let Some(hellos) = self.hellos {
            core.release(hellos);
        }
    }

    pub(crate) fn is_connected(&self, core: &Core) -> bool {
        let is_open = |slot| core.links.get(slot).is_open();
        is_open(self.commands) && self.hellos.is_none_or(is_open)
    }

    /// How old its last report is; `None` before the first.
    pub(crate) fn report_age(&self, now: Moment) -> Option<Duration> {
        self.known.asked_at.map(|at| now.since(at))
    }

    /// For how long it has been without its primary: what it said, and the time since then, unless
    /// it said that the link is up.
    pub(crate) fn link_down_for(&self, now: Moment) -> Duration {
        let report = &self.known.report;
        let age = self.report_age(now).filter(|_| !report.is_link_up);
        report.link_down_for.saturating_add(age.unwrap_or_default())
    }

    /// Whether it has not been down lately.
    pub(crate) fn is_up_for(&self, now: Moment, span: Duration) -> bool {
        self.down_since.is_none_or(|since| now.since(since) > span)
    }

    /// A primary that can be followed: it says so itself, lately.
    pub(crate) fn is_sane_primary(&self, now: Moment, info_every: Duration) -> bool {
        let is_fresh = self.report_age(now).is_some_and(|age| age < info_every * 2);
        let is_primary = self.known.report.role == Some(ReportedRole::Primary);
        is_primary && is_fresh && self.down_since.is_none()
    }
}

/// Another sentinel.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: RunId,
    pub(crate) instance: Instance,
    pub(crate) asked_at: Option<Moment>,
    pub(crate) answered_at: Option<Moment>,
    /// When its last hello came.
    pub(crate) heard_at: Moment,
    /// Where it was before, and when it moved.
    pub(crate) moved_from: Option<(Address, Moment)>,
    /// Somebody else is at its address: it counts for the majority, and is asked nothing until it
    /// says where it is.
    pub(crate) is_displaced: bool,
    pub(crate) says_down: bool,
    pub(crate) vote: Option<Vote>,
}

impl Peer {
    pub(crate) fn new(now: Moment, core: &mut Core, id: RunId, address: Address) -> Self {
        let access = Access { login: usable(core.globals.login.as_ref()), ..Access::default() };
        let commands = core.links.share(now, &id, &address, access);
        Self {
            id,
            instance: Instance::new(now, address, commands, None),
            asked_at: None,
            answered_at: None,
            heard_at: now,
            moved_from: None,
            is_displaced: false,
            says_down: false,
            vote: None,
        }
    }

    /// Somebody else is at its address. Whether that is news.
    pub(crate) fn displace(&mut self, core: &mut Core) -> bool {
        self.forget_answers();
        core.close(self.instance.commands);
        !std::mem::replace(&mut self.is_displaced, true)
    }

    /// What it said about a primary counts no more.
    pub(crate) fn forget_answers(&mut self) {
        (self.asked_at, self.answered_at) = (None, None);
        (self.says_down, self.vote) = (false, None);
    }
}
