//! A node of a cluster in a turn of the loop: connections are accepted and read, time passes, and
//! what the machine asks for is done in order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use store_cluster::wire::kind_of;
use store_cluster::{Address, DataState, LinkId, Message, Now, Output, Role, SlotSet};
use store_engine::{BusLink, ClusterState, CommandError, LogLevel, SessionId};
use store_replica::LinkPhase;

use super::EventLoop;
use crate::cluster::{ClusterDriver, LINK_BUFFER_MAX, Released, Written, settings_of, words};
use crate::peers::{BUS_BASE, PeerEvent, PeerId, PeerRead, Target};

/// Read at once from one connection.
const READ_LEN: usize = 64 * 1024;
/// Reads of one connection in a turn: the others and clients wait for it.
const READS_MAX: usize = 4;
/// Connections accepted per listener and turn.
const ACCEPTS_MAX: usize = 64;
/// The least time that a connection may take to open.
const DIAL_MIN: Duration = Duration::from_secs(1);
/// What a packet has besides a message for subscribers.
const PACKET_OVERHEAD: u64 = 1024 * 1024;

impl EventLoop {
    /// The clocks, for whoever asks the machine in this turn. A node that was stopped for so long
    /// that others may have replaced it notices that before it answers anybody.
    #[inline]
    pub(super) fn tell_cluster_time(&mut self) {
        let Some(driver) = &self.cluster else { return };
        let (is_started, due_at) = (driver.is_started, driver.wakes_at_ms);
        let now = self.cluster_now();
        let node_timeout = self.engine.config().settings().cluster.machine.node_timeout;
        let Some(state) = self.engine.cluster_mut() else { return };
        state.now = now;
        if is_started && now.monotonic_ms > due_at.saturating_add(node_timeout) {
            state.machine.handle_tick(now);
        }
    }

    fn cluster_now(&self) -> Now {
        Now { monotonic_ms: self.running.millis(), unix_ms: self.clock.now_us() / 1000 }
    }

    /// Data is loaded: the node takes its part. Fails when the data is none of a cluster's.
    pub(super) fn start_cluster(&mut self) -> Result<(), String> {
        let Some(mut driver) = self.cluster.take() else { return Ok(()) };
        if let Some(db) = self.engine.other_database_in_use() {
            return Err(format!(
                "there are keys in database {db}, but a node of a cluster has only database 0: \
                 move or remove them with cluster-enabled no, then start again"
            ));
        }
        self.adopt_loaded_keys();
        for (index, listener) in driver.listeners.iter_mut().enumerate() {
            let token = mio::Token(BUS_BASE + index);
            listener.register(self.poll.registry(), token).map_err(|error| error.to_string())?;
            driver.to_accept.insert(index);
        }
        driver.is_started = true;
        self.obey_cluster(&mut driver);
        self.cluster = Some(driver);
        Ok(())
    }

    fn adopt_loaded_keys(&mut self) {
        let (now, slots) = (self.cluster_now(), self.engine.slots_in_use());
        let Some(state) = self.engine.cluster_mut() else { return };
        let adopted = state.machine.adopt_keys(now, &slots);
        for (slots, words) in [
            (adopted.taken, "Taking slots that nobody serves, as there are keys"),
            (adopted.importing, "There are keys of slots of other nodes, importing"),
            (
                adopted.outdated,
                "There are keys of slots that were given away. They are removed \
              when the owner is heard",
            ),
        ] {
            if !slots.is_empty() {
                self.log(LogLevel::Warning, &format!("{words}: {slots:?}"));
            }
        }
    }

    /// A replica was promoted: moves of its master go on.
    fn adopt_copied_keys(&mut self, left: &SlotSet) {
        let (now, slots) = (self.cluster_now(), self.engine.slots_in_use());
        let Some(state) = self.engine.cluster_mut() else { return };
        let importing = state.machine.adopt_copied_keys(now, &slots, left);
        if !importing.is_empty() {
            let line = format!("The old master was importing slots, which goes on: {importing:?}");
            self.log(LogLevel::Warning, &line);
        }
    }

    fn drop_slots(&mut self, slots: &SlotSet) {
        let count = self.engine.drop_slots(self.now_us, slots);
        if count > 0 {
            let line = format!("Removing {count} keys of slots of other nodes: {slots:?}");
            self.log(LogLevel::Warning, &line);
        }
    }

    /// One pass for the cluster, before what requests caused is done.
    pub(super) fn turn_cluster(&mut self) {
        let Some(mut driver) = self.cluster.take() else { return };
        for written in std::mem::take(&mut self.nodes_written) {
            self.nodes_file_written(&mut driver, written);
        }
        if driver.is_started {
            // A master that hands its slots over tells how far all is that it has acknowledged.
            self.feed_early();
            self.tell_data(&mut driver);
            self.kill_bus_links(&mut driver);
            self.accept_bus(&mut driver);
            self.read_bus(&mut driver);
            let now = self.cluster_now();
            driver.file.work(now.monotonic_ms);
            if now.monotonic_ms >= driver.wakes_at_ms {
                if let Some(state) = self.engine.cluster_mut() {
                    state.machine.handle_tick(now);
                }
                self.close_silent_strangers(&mut driver);
                // A move that was called off changes no owner, but whoever waits there does so in
                // vain.
                self.engine.redirect_waiting();
                self.tell_links(&driver);
            }
            self.obey_cluster(&mut driver);
        }
        self.cluster = Some(driver);
    }

    /// What requests caused in this turn.
    pub(super) fn finish_cluster_turn(&mut self) {
        let Some(mut driver) = self.cluster.take() else { return };
        if driver.is_started {
            self.obey_cluster(&mut driver);
        }
        self.cluster = Some(driver);
    }

    /// A session changed something, and waits until that is kept.
    pub(super) fn answer_when_saved(&mut self, id: SessionId) {
        let Some(mut driver) = self.cluster.take() else { return };
        self.obey_cluster(&mut driver);
        driver.hold_reply(id);
        self.send_packets(&mut driver);
        self.cluster = Some(driver);
    }

    /// How long nothing is due here, in milliseconds.
    pub(super) fn cluster_wait_ms(&self) -> Option<u64> {
        let driver = self.cluster.as_ref().filter(|driver| driver.is_started)?;
        if !driver.ready.is_empty() || !driver.to_accept.is_empty() {
            return Some(0);
        }
        let file_at = driver.file.wakes_at_ms().unwrap_or(u64::MAX);
        Some(driver.wakes_at_ms.min(file_at).saturating_sub(self.running.millis()))
    }

    /// nodes.conf was written, or cannot be.
    fn nodes_file_written(&mut self, driver: &mut ClusterDriver, written: Written) {
        let now = self.cluster_now();
        let now_ms = self.running.millis();
        if let Some((level, line)) = driver.file.finish(now_ms, written) {
            self.log(level, &line);
        }
        if let Some(state) = self.engine.cluster_mut() {
            let is_unsaved = driver.file.has_failed();
            match (is_unsaved, state.is_unsaved) {
                (true, _) => state.machine.handle_file_lost(now, driver.file.saved()),
                (false, true) => state.machine.handle_file_written(now),
                (false, false) => {}
            }
            state.is_unsaved = is_unsaved;
        }
    }

    /// The server ends.
    pub(super) fn close_cluster(&mut self) {
        let Some(mut driver) = self.cluster.take() else { return };
        if let Err(error) = driver.file.close() {
            self.log(LogLevel::Warning, &format!("Cannot write nodes.conf at the end: {error}"));
        }
    }

    /// Looks at all connections, whether an event told of them or not: somebody else took the
    /// events.
    pub(super) fn look_at_bus(&mut self) {
        if let Some(driver) = &mut self.cluster {
            driver.ready.extend(driver.of_peers.keys());
            driver.to_accept.extend(0..driver.listeners.len());
        }
    }

    /// The settings changed.
    pub(super) fn set_cluster(&mut self) {
        let Some(driver) = &self.cluster else { return };
        let ports = self.shared.sockets.ports();
        let settings = settings_of(self.engine.config(), ports, driver.bus_port);
        let now = self.cluster_now();
        if let Some(state) = self.engine.cluster_mut() {
            state.machine.set_settings(now, settings);
        }
    }

    /// How far the data is, and when it last was in step with the master.
    fn tell_data(&mut self, driver: &mut ClusterDriver) {
        let now_ms = self.running.millis();
        let machine = &self.replication.machine;
        let offset = machine.history().offset();
        let Some(state) = self.engine.cluster_mut() else { return };
        let master = match state.machine.role() {
            Role::ReplicaOf { id, .. } => Some(*id),
            Role::Master => None,
        };
        driver.in_step = driver.in_step.filter(|(id, _)| Some(*id) == master);
        if let (Some(id), Some(LinkPhase::Connected)) = (master, machine.link_phase()) {
            let silence = machine.link_silence(self.replication.now()).unwrap_or_default();
            let heard_at = now_ms.saturating_sub(silence.as_millis() as u64);
            driver.in_step = Some((id, heard_at));
        }
        let in_step_at = driver.in_step.map(|(_, at)| at);
        state.machine.handle_data(DataState { offset, in_step_at });
    }

    /// A socket of the bus has connections.
    pub(super) fn take_bus_event(&mut self, index: usize) {
        if let Some(driver) = &mut self.cluster {
            driver.to_accept.insert(index);
        }
    }

    fn accept_bus(&mut self, driver: &mut ClusterDriver) {
        for index in std::mem::take(&mut driver.to_accept) {
            for accepted in 0..=ACCEPTS_MAX {
                if accepted == ACCEPTS_MAX {
                    driver.to_accept.insert(index);
                    break;
                }
                let settings = self.engine.config().settings();
                let tls = Some(&self.shared.sockets.tls).filter(|_| settings.tls.encrypts_bus);
                let Some(listener) = driver.listeners.get(index) else { break };
                let stream = match listener.accept_as(settings.clients.keepalive, tls) {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                self.make_room_on_bus(driver);
                let now = self.cluster_now();
                let registry = self.poll.registry();
                if let Some(peer) = self.peers.adopt(registry, now.monotonic_ms, stream) {
                    let link = driver.accept(peer, now);
                    self.note_hosts(driver, link, peer);
                }
            }
        }
    }

    /// One more may be a node that was away: a stranger goes if there are too many.
    fn make_room_on_bus(&mut self, driver: &mut ClusterDriver) {
        let Some(state) = self.engine.cluster() else { return };
        let Some(link) = driver.in_the_way(&state.machine) else { return };
        if driver.may_tell_of_crowd(self.running.millis()) {
            let host = driver.links.get(&link).map(|it| it.hosts.1.clone()).unwrap_or_default();
            let line = format!(
                "Many connections to the bus are of nobody that is known. Closing those that were \
                 silent for longest, the first from {host}: who but nodes can reach port {}?",
                driver.bus_port
            );
            self.log(LogLevel::Warning, &line);
        }
        self.drop_bus_link(driver, link);
    }

    fn close_silent_strangers(&mut self, driver: &mut ClusterDriver) {
        let node_timeout = self.engine.config().settings().cluster.machine.node_timeout;
        for link in driver.silent_strangers(self.running.millis(), node_timeout) {
            self.drop_bus_link(driver, link);
        }
    }

    fn note_hosts(&self, driver: &mut ClusterDriver, link: LinkId, peer: PeerId) {
        if let (Some(hosts), Some(connection)) =
            (self.peers.hosts(peer), driver.links.get_mut(&link))
        {
            connection.hosts = hosts;
        }
    }

    fn read_bus(&mut self, driver: &mut ClusterDriver) {
        let mut buffer = std::mem::take(&mut driver.buffer);
        buffer.resize(READ_LEN, 0);
        for peer in std::mem::take(&mut driver.ready) {
            let Some(link) = driver.of_peers.get(&peer).copied() else { continue };
            for _ in 0..READS_MAX {
                if !driver.of_peers.contains_key(&peer) {
                    break;
                }
                let PeerRead::Bytes(len) = self.peers.read(self.poll.registry(), peer, &mut buffer)
                else {
                    break;
                };
                self.take_bus_bytes(driver, link, &buffer[..len]);
            }
            if self.peers.may_read(peer) {
                driver.ready.insert(peer);
            }
        }
        driver.buffer = buffer;
    }

    fn take_bus_bytes(&mut self, driver: &mut ClusterDriver, link: LinkId, bytes: &[u8]) {
        let bulk_max = self.engine.config().settings().clients.bulk_max as u64;
        let packet_max = u32::try_from(2 * bulk_max + PACKET_OVERHEAD).unwrap_or(u32::MAX);
        match driver.take_bytes(link, bytes, packet_max) {
            Ok(packets) => {
                for packet in packets {
                    self.take_packet(driver, link, &packet);
                }
            }
            Err(error) => {
                let hosts = driver.links.get(&link).map(|it| it.hosts.1.clone());
                let line = format!("Closing a connection of the bus from {hosts:?}: {error}");
                self.log(LogLevel::Warning, &line);
                self.drop_bus_link(driver, link);
            }
        }
    }

    fn take_packet(&mut self, driver: &mut ClusterDriver, link: LinkId, packet: &[u8]) {
        let now = self.cluster_now();
        let Some(state) = self.engine.cluster_mut() else { return };
        if let Err(error) = driver.hear(state, now, link, packet) {
            self.log(LogLevel::Debug, &format!("A packet is dropped: {error}"));
        }
        self.obey_cluster(driver);
    }

    /// DEBUG CLUSTERLINK KILL.
    fn kill_bus_links(&mut self, driver: &mut ClusterDriver) {
        let Some(state) = self.engine.cluster_mut() else { return };
        for killed in std::mem::take(&mut state.killed_links) {
            let Some(state) = self.engine.cluster() else { return };
            let Some(index) = state.machine.nodes().find(killed.node) else { continue };
            let node = &state.machine.nodes()[index];
            let inbound = node.inbound.filter(|_| killed.from).map(LinkId::Inbound);
            let dialled = node.link.filter(|_| killed.to);
            let dialled = dialled.map(|it| LinkId::Dialled { node: index, number: it.number });
            for link in inbound.into_iter().chain(dialled) {
                self.drop_bus_link(driver, link);
            }
        }
    }

    /// Closes a connection from here.
    fn drop_bus_link(&mut self, driver: &mut ClusterDriver, link: LinkId) {
        if let Some(peer) = driver.forget(link) {
            self.peers.close(self.poll.registry(), peer);
        }
        let now = self.cluster_now();
        if let Some(state) = self.engine.cluster_mut() {
            state.machine.handle_link_down(now, link);
        }
    }

    /// Something became of a connection of the bus.
    pub(super) fn take_bus_peer_event(&mut self, event: &PeerEvent) {
        let Some(mut driver) = self.cluster.take() else { return };
        let now = self.cluster_now();
        match event {
            PeerEvent::Opened(peer) => {
                if let Some(link) = driver.of_peers.get(peer).copied() {
                    self.note_hosts(&mut driver, link, *peer);
                    driver.ready.insert(*peer);
                    if let Some(state) = self.engine.cluster_mut() {
                        state.machine.handle_link_up(now, link);
                    }
                }
            }
            PeerEvent::Closed(peer, _) => {
                if let Some(link) = driver.of_peers.get(peer).copied() {
                    driver.forget(link);
                    if let Some(state) = self.engine.cluster_mut() {
                        state.machine.handle_link_down(now, link);
                    }
                }
            }
        }
        self.obey_cluster(&mut driver);
        self.cluster = Some(driver);
    }

    /// Does what the machine asks for, in order.
    fn obey_cluster(&mut self, driver: &mut ClusterDriver) {
        while let Some(state) = self.engine.cluster_mut() {
            match driver.next_output(state) {
                Output::Persist { text, is_synced, claim } => {
                    driver.persist(self.running.millis(), (text, claim), is_synced);
                }
                Output::Send { link, message } => driver.hold(link, message),
                Output::Dial { link, address } => self.dial_node(driver, link, &address),
                Output::Close(link) => {
                    if let Some(peer) = driver.forget(link) {
                        self.peers.close(self.poll.registry(), peer);
                    }
                }
                Output::Become(role) => self.become_role(&role),
                Output::PauseWrites => self.hold_for_cluster(true),
                Output::Unpause => self.hold_for_cluster(false),
                Output::DropSlots(slots) => self.drop_slots(&slots),
                Output::FindKeys { left } => self.adopt_copied_keys(&left),
                Output::Publish(publication) => self.engine.publish_from_bus(&publication),
                Output::Log(event) => {
                    let (level, line) = words(&state.machine, self.running.millis(), &event);
                    self.log(level, &line);
                }
                Output::WaitUntil(at_ms) => {
                    driver.wakes_at_ms = at_ms;
                    break;
                }
            }
        }
        self.send_packets(driver);
        if self.engine.cluster_mut().is_some_and(|state| state.machine.take_routes_changed()) {
            self.engine.redirect_waiting();
            self.engine.leave_lost_channels();
        }
    }

    fn send_packets(&mut self, driver: &mut ClusterDriver) {
        let limit = match self.engine.config().settings().cluster.link_buffer_max {
            0 => LINK_BUFFER_MAX,
            limit => limit,
        };
        while let Some(state) = self.engine.cluster() {
            let Some(released) = driver.next_released(&state.machine) else { break };
            match released {
                Released::Packet(link, message) => self.send_packet(driver, link, &message, limit),
                Released::Reply(id, Ok(())) => self.engine.answer_waiting(id, b"+OK\r\n"),
                Released::Reply(id, Err(())) => {
                    self.engine.refuse_waiting(id, &CommandError::UNKEPT_CHANGE);
                }
            }
        }
        driver.forget_encoded();
    }

    fn send_packet(
        &mut self,
        driver: &mut ClusterDriver,
        link: LinkId,
        message: &Arc<Message>,
        limit: usize,
    ) {
        let Some(peer) = driver.links.get(&link).map(|connection| connection.peer) else { return };
        let limit = driver.buffer_max(link, limit);
        let bytes = driver.encode(message);
        let is_over = self.peers.unsent(peer) + bytes.len() > limit;
        self.peers.send_within(self.poll.registry(), peer, bytes, limit);
        if let Some(state) = self.engine.cluster_mut() {
            state.links_overrun += u64::from(is_over);
            state.sent.add(kind_of(&message.body));
        }
    }

    fn dial_node(&mut self, driver: &mut ClusterDriver, link: LinkId, address: &Address) {
        let settings = self.engine.config().settings();
        let dialer = &self.shared.sockets.dialer;
        let tls = settings.tls.encrypts_bus.then(|| dialer.clone());
        let timeout = Duration::from_millis(settings.cluster.machine.node_timeout).max(DIAL_MIN);
        let target = Target { host: &address.ip, port: address.bus_port, tls, timeout };
        let peer = self.peers.dial(self.poll.registry(), self.running.millis(), &target);
        driver.open(link, peer, self.cluster_now());
    }

    /// The data does what the node's role says.
    fn become_role(&mut self, role: &Role) {
        match role {
            Role::Master => self.follow(None),
            Role::ReplicaOf { address: Some(address), .. } => {
                let primary =
                    store_replica::Address { host: address.ip.to_string(), port: address.port };
                self.follow(Some(primary));
            }
            // It is told again once the address is known.
            Role::ReplicaOf { address: None, .. } => {}
        }
        crate::replication::tell_facts(&self.replication, &mut self.engine);
    }

    /// The master that this node follows, as nodes.conf says.
    pub(super) fn master_in_cluster(&self) -> Option<store_replica::Address> {
        match self.engine.cluster_role()? {
            Role::ReplicaOf { address: Some(address), .. } => {
                Some(store_replica::Address { host: address.ip.to_string(), port: address.port })
            }
            _ => None,
        }
    }

    /// For CLUSTER LINKS and INFO.
    fn tell_links(&mut self, driver: &ClusterDriver) {
        let links = driver.links.iter().map(|(link, connection)| {
            let (used, allocated) = self.peers.output_size(connection.peer);
            BusLink {
                link: *link,
                node: connection.node,
                opened_at_ms: connection.opened_at_ms,
                is_waiting: used > 0,
                allocated,
                used,
            }
        });
        let mut links: Vec<BusLink> = links.collect();
        let Some(state) = self.engine.cluster_mut() else { return };
        name_dialled(state, &mut links);
        state.set_links(links);
    }
}

/// A connection that was opened from here leads to the node that it was opened for.
fn name_dialled(state: &ClusterState, links: &mut [BusLink]) {
    for link in links {
        if let LinkId::Dialled { node, .. } = link.link {
            link.node = state.machine.nodes().get(node).map(|node| node.id);
        }
    }
}
