//! One group: a primary with a name, its replicas, and the sentinels that watch it, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use store_replica::{Address, Moment};

use crate::config::{GroupConfiguration, KnownPeer};
use crate::core::Core;
use crate::event::{EventKind, Level};
use crate::failover::{Failover, FailoverStep};
use crate::history::History;
use crate::instance::{Instance, Peer};
use crate::links::{GroupMember, Target};
use crate::settings::{GroupSettings, RunId};

/// Replicas and sentinels of one group that are remembered, at most: both are hearsay.
pub(crate) const REPLICAS_MAX: usize = 1_000;
pub(crate) const PEERS_MAX: usize = 250;

/// What a sentinel knows about one primary and those around it.
#[derive(Debug)]
pub struct Group {
    pub(crate) name: Arc<str>,
    pub(crate) settings: GroupSettings,
    pub(crate) primary: Instance,
    /// Whether the primary says that it is none, and the operator was told.
    pub(crate) is_primary_a_replica: bool,
    /// Which data counts, as far as the primary has told it.
    pub(crate) history: Option<History>,
    pub(crate) replicas: BTreeMap<Address, Instance>,
    pub(crate) peers: BTreeMap<RunId, Peer>,
    /// Since which epoch the primary is where it is.
    pub(crate) config_epoch: u64,
    /// In which epoch this sentinel last voted.
    pub(crate) leader_epoch: u64,
    /// For whom; unknown after a restart, and not needed then.
    pub(crate) leader: Option<RunId>,
    pub(crate) down_agreed_since: Option<Moment>,
    pub(crate) failover: Option<Failover>,
    /// The last try, by this sentinel or by whom it voted for. It may lie ahead.
    pub(crate) tried_at: Option<Moment>,
}

impl Group {
    pub(crate) fn new(now: Moment, core: &mut Core, configuration: GroupConfiguration) -> Self {
        let GroupConfiguration { name, primary, settings, config_epoch, leader_epoch, .. } =
            configuration;
        let access = settings.access();
        let mut group = Self {
            name: name.into(),
            primary: Instance::server(now, core, primary, access),
            is_primary_a_replica: false,
            settings,
            history: None,
            replicas: BTreeMap::new(),
            peers: BTreeMap::new(),
            config_epoch,
            leader_epoch,
            leader: None,
            down_agreed_since: None,
            failover: None,
            tried_at: None,
        };
        for address in configuration.replicas {
            group.add_replica(now, core, address);
        }
        for KnownPeer { address, id } in configuration.peers {
            if id != core.id {
                let is_displaced = group.peers.values().any(|it| it.instance.address == address);
                let peer = Peer::new(now, core, id.clone(), address);
                group.peers.insert(id, Peer { is_displaced, ..peer });
            }
        }
        let text =
            format!("{} quorum {}", group.describe(&GroupMember::Primary), group.settings.quorum);
        group.tell(core, EventKind::Monitor, text);
        group
    }

    /// Tells of something, and has the operator's script run for what matters.
    pub(crate) fn tell(&self, core: &mut Core, kind: EventKind, text: String) {
        let script = self.settings.notification_script.as_ref();
        if let Some(path) = script.filter(|_| kind.level() == Level::Warning) {
            core.run_script(vec![path.clone(), kind.name().to_owned(), text.clone()]);
        }
        core.tell(kind, text);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its settings.
    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// Where the primary is, as this sentinel tells clients: the new one as soon as it is promoted.
    pub fn address(&self) -> &Address {
        match self.failover.as_ref().map(|failover| &failover.step) {
            Some(FailoverStep::Reconfigure { to } | FailoverStep::UpdateConfig { to }) => to,
            _ => &self.primary.address,
        }
    }

    /// Since which epoch it is there.
    pub fn config_epoch(&self) -> u64 {
        self.config_epoch
    }

    /// Whether this sentinel gets no answer from the primary.
    pub fn is_subjectively_down(&self) -> bool {
        self.primary.down_since.is_some()
    }

    /// Since when the primary has not answered.
    pub fn down_since(&self) -> Option<Moment> {
        self.primary.down_since
    }

    /// Whether enough sentinels agree that it is down.
    pub fn is_objectively_down(&self) -> bool {
        self.down_agreed_since.is_some()
    }

    /// The failover that this sentinel tries or leads.
    pub fn failover_step(&self) -> Option<&FailoverStep> {
        self.failover.as_ref().map(|failover| &failover.step)
    }

    /// Its epoch.
    pub fn failover_epoch(&self) -> Option<u64> {
        self.failover.as_ref().map(|failover| failover.epoch)
    }

    /// Known replicas.
    pub fn replicas(&self) -> impl Iterator<Item = &Address> {
        self.replicas.keys()
    }

    /// Known other sentinels.
    pub fn sentinels(&self) -> impl Iterator<Item = &RunId> {
        self.peers.keys()
    }

    pub(crate) fn target(&self, member: GroupMember) -> Target {
        Target { group: Arc::clone(&self.name), member }
    }

    pub(crate) fn add_replica(&mut self, now: Moment, core: &mut Core, address: Address) -> bool {
        let is_primary = core.is_same(&address, &self.primary.address);
        let is_new = !is_primary && !self.replicas.contains_key(&address);
        // One that is not kept is not news either: it would be told with every INFO.
        let is_kept = is_new && self.replicas.len() < REPLICAS_MAX;
        if is_kept {
            let access = self.settings.access();
            let instance = Instance::server(now, core, address.clone(), access);
            self.replicas.insert(address, instance);
        }
        is_kept
    }

    /// The primary is at `address` from now on; the old one becomes a replica when it is back.
    /// Whatever was known about servers is asked for again.
    pub(crate) fn switch_to(&mut self, now: Moment, core: &mut Core, address: Address) {
        let old = self.primary.address.clone();
        let mut replicas: Vec<Address> = self.replicas.keys().cloned().collect();
        replicas.push(old.clone());
        for instance in self.replicas.values().chain([&self.primary]) {
            instance.release(core);
        }
        // Whoever led the failover has heard it from the new one. The old one's says nothing any
        // more: who has synchronised since has left it.
        let promoted = self.replicas.get(&address).map(|replica| &replica.known);
        self.history =
            promoted.and_then(|known| History::of_primary(&known.report, known.asked_at?));
        self.replicas.clear();
        self.primary = Instance::server(now, core, address, self.settings.access());
        for replica in replicas {
            self.add_replica(now, core, replica);
        }
        for peer in self.peers.values_mut() {
            peer.forget_answers();
            peer.instance.hello_at = None;
        }
        self.down_agreed_since = None;
        self.failover = None;
        core.mark_changed();
        let new = &self.primary.address;
        let text = format!("{} {} {} {} {}", self.name, old.host, old.port, new.host, new.port);
        self.tell(core, EventKind::SwitchPrimary, text);
        let replicas: Vec<Address> = self.replicas.keys().cloned().collect();
        for replica in replicas {
            self.tell(core, EventKind::FoundReplica, self.describe(&GroupMember::Replica(replica)));
        }
    }

    /// SENTINEL RESET: what is known of others is asked for again. A promotion stands: others may
    /// have heard of it, and its epoch has one address.
    pub(crate) fn forget_others(&mut self, now: Moment, core: &mut Core) {
        let promoted = Some(self.address()).filter(|address| **address != self.primary.address);
        if let Some(promoted) = promoted.cloned() {
            self.switch_to(now, core, promoted);
        }
        self.release(core);
        (self.replicas, self.peers) = (BTreeMap::new(), BTreeMap::new());
        let address = self.primary.address.clone();
        self.primary = Instance::server(now, core, address, self.settings.access());
        (self.failover, self.down_agreed_since, self.tried_at) = (None, None, None);
        self.history = None;
        core.mark_changed();
        self.tell(core, EventKind::ResetPrimary, self.describe(&GroupMember::Primary));
    }

    /// The servers are logged in at anew, and called by their names for commands.
    pub(crate) fn apply_access(&self, core: &mut Core) {
        let access = self.settings.access();
        for instance in self.replicas.values().chain([&self.primary]) {
            for slot in [instance.commands].into_iter().chain(instance.hellos) {
                core.set_access(slot, access.clone());
            }
        }
    }

    /// Everybody hears of the newest state with the next tick.
    pub(crate) fn hurry_hellos(&mut self) {
        let peers = self.peers.values_mut().map(|peer| &mut peer.instance);
        for instance in self.replicas.values_mut().chain(peers).chain([&mut self.primary]) {
            instance.hello_at = None;
        }
    }

    pub(crate) fn release(&self, core: &mut Core) {
        let peers = self.peers.values().map(|peer| &peer.instance);
        for instance in self.replicas.values().chain(peers).chain([&self.primary]) {
            instance.release(core);
        }
    }

    /// `<type> <name> <ip> <port>[ @ <master> <ip> <port>]`
    pub(crate) fn describe(&self, member: &GroupMember) -> String {
        let Address { host, port } = &self.primary.address;
        match member {
            GroupMember::Primary => format!("master {} {host} {port}", self.name),
            GroupMember::Replica(at) => {
                format!("slave {at} {} {} @ {} {host} {port}", at.host, at.port, self.name)
            }
            GroupMember::Peer(id) => {
                let at = self.peers.get(id).map(|peer| &peer.instance.address);
                let at = at.map_or_else(String::new, |at| format!("{} {}", at.host, at.port));
                format!("sentinel {id} {at} @ {} {host} {port}", self.name)
            }
        }
    }

    /// What the file keeps of it. Once a replica is promoted the file names it, whatever comes.
    pub(crate) fn configuration(&self) -> GroupConfiguration {
        let primary = self.address().clone();
        let others = self.replicas.keys().chain([&self.primary.address]);
        let known =
            |peer: &Peer| KnownPeer { address: peer.instance.address.clone(), id: peer.id.clone() };
        GroupConfiguration {
            name: self.name.to_string(),
            settings: self.settings.clone(),
            config_epoch: self.config_epoch,
            leader_epoch: self.leader_epoch,
            replicas: others.filter(|address| **address != primary).cloned().collect(),
            peers: self.peers.values().map(known).collect(),
            primary,
        }
    }
}
