//! The text of nodes.conf, as redis-server 7.0 writes and reads it.

use std::fmt::Write as _;
use std::sync::Arc;

use store_resp::slot::SLOT_COUNT;

use crate::cluster::Cluster;
use crate::epoch::IN_FILE_MAX;
use crate::id::NodeId;
use crate::message::{Address, Flags};
use crate::node::{Node, NodeIndex};
use crate::settings::{Now, Settings};
use crate::slots::SlotSet;

/// nodes.conf cannot be used. The node must not start with a guess: it could vote twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "nodes.conf line {line}: {what}; restore the file from a copy, or remove it and let the node \
     join the cluster anew"
)]
pub struct ConfigError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// The word before slots that this node gave away.
const RELEASED_SLOTS: &str = "tenureReleasedSlots";

/// The word before slots that this node took and from whom, who may still claim them.
const TAKEN_SLOTS: &str = "tenureTakenSlots";

/// Flags in the order in which they are written.
const WORDS: &[(Flags, &str)] = &[
    (Flags::MYSELF, "myself"),
    (Flags::MASTER, "master"),
    (Flags::REPLICA, "slave"),
    (Flags::SUSPECTED, "fail?"),
    (Flags::FAILED, "fail"),
    (Flags::HANDSHAKE, "handshake"),
    (Flags::NO_ADDRESS, "noaddr"),
    (Flags::NO_FAILOVER, "nofailover"),
];

impl Cluster {
    /// All of nodes.conf.
    pub fn config_text(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().filter(|(_, node)| !node.is_in_handshake()) {
            self.write_line(&mut text, index, node, node.address.port);
            text.push('\n');
        }
        let (current, vote) = (self.current_epoch, self.last_vote_epoch);
        _ = write!(text, "vars currentEpoch {current} lastVoteEpoch {vote}");
        if !self.released.is_empty() {
            let ranges = self.released.ranges().into_iter().map(range_text).collect::<Vec<_>>();
            // Redis skips what it does not know here.
            _ = write!(text, " {RELEASED_SLOTS} {}", ranges.join(","));
        }
        for (place, (slot, taken)) in self.taken.iter().enumerate() {
            let before = if place == 0 { format!(" {TAKEN_SLOTS} ") } else { ",".to_owned() };
            _ = write!(text, "{before}{slot}-<-{}", self.nodes[taken.giver].id);
        }
        text.push('\n');
        text
    }

    /// The line of a node in CLUSTER NODES and nodes.conf, without its end. `port` is the one for
    /// clients that is told.
    pub fn write_line(&self, text: &mut String, index: NodeIndex, node: &Node, port: u16) {
        let address = &node.address;
        _ = write!(text, "{} {}:{port}@{}", node.id, address.ip, address.bus_port);
        if let Some(hostname) = &node.hostname {
            _ = write!(text, ",{hostname}");
        }
        text.push(' ');
        let words = WORDS.iter().filter(|(flag, _)| node.flags.has(*flag)).map(|(_, word)| *word);
        let words: Vec<_> = words.collect();
        text.push_str(if words.is_empty() { "noflags" } else { "" });
        text.push_str(&words.join(","));
        let master = node.master.map(|master| &self.nodes[master]);
        match master {
            Some(master) => _ = write!(text, " {}", master.id),
            None => text.push_str(" -"),
        }
        let epoch = master.map_or(node.config_epoch, |master| master.config_epoch);
        let is_linked = index == self.me || node.link.is_some_and(|link| link.is_up);
        let link = if is_linked { "connected" } else { "disconnected" };
        let (ping, pong) = (self.unix(node.ping_sent_at), self.unix(node.pong_at));
        _ = write!(text, " {ping} {pong} {epoch} {link}");
        for range in node.slots.ranges() {
            _ = write!(text, " {}", range_text(range));
        }
        if index == self.me {
            self.write_open_slots(text);
        }
    }

    fn write_open_slots(&self, text: &mut String) {
        for (slot, to) in &self.migrating {
            _ = write!(text, " [{slot}->-{}]", self.nodes[*to].id);
        }
        for (slot, from) in &self.importing {
            _ = write!(text, " [{slot}-<-{}]", self.nodes[*from].id);
        }
    }

    fn unix(&self, at: Option<u64>) -> u64 {
        at.map_or(0, |at| self.now.unix_ms.saturating_sub(self.ms().saturating_sub(at)))
    }

    /// A node as it was when `text` was written.
    pub fn restore(
        now: Now,
        text: &str,
        settings: Settings,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        let lines = parse_lines(text)?;
        let myself = lines.nodes.iter().find(|line| line.flags.has(Flags::MYSELF));
        let end = text.lines().count();
        let myself = myself.ok_or_else(|| error(end, "no node is marked as myself"))?;
        let mut cluster = Cluster::new(now, myself.id, settings, seed);
        for line in &lines.nodes {
            cluster.restore_node(line)?;
        }
        for line in &lines.nodes {
            cluster.restore_relations(line)?;
        }
        (cluster.current_epoch, cluster.last_vote_epoch) = lines.vars.epochs;
        for slot in lines.vars.released.into_iter().flat_map(|(first, last)| first..=last) {
            let is_here = cluster.owner(slot) == Some(cluster.me);
            if !is_here && !cluster.importing.contains_key(&slot) {
                cluster.released.insert(slot);
            }
        }
        cluster.restore_taken(&lines.vars.taken);
        cluster.restore_epoch();
        // Nobody is known to know its epoch.
        cluster.withhold();
        cluster.mark_own_wish();
        Ok(cluster)
    }

    fn restore_node(&mut self, line: &Line) -> Result<(), ConfigError> {
        if line.flags.has(Flags::MYSELF) {
            if line.id != self.me().id {
                return Err(error(line.number, "a second node is marked as myself"));
            }
            let me = self.me_mut();
            if me.address.ip.is_empty() {
                me.address.ip = Arc::clone(&line.address.ip);
            }
            me.flags = line.flags;
            me.config_epoch = line.epoch;
            return Ok(());
        }
        let mut node = Node::new(line.id, line.flags, line.address.clone(), self.ms());
        node.hostname.clone_from(&line.hostname);
        node.config_epoch = line.epoch;
        node.failed_at = self.ms();
        let added = self.nodes.add(node);
        added.map(|_| ()).ok_or_else(|| error(line.number, "this node is there twice"))
    }

    /// Masters and slots, once all nodes are there.
    fn restore_relations(&mut self, line: &Line) -> Result<(), ConfigError> {
        let index = self.nodes.find(line.id).expect("it was added");
        if let Some(master) = line.master {
            let master = self.nodes.find(master);
            let master = master.filter(|master| *master != index);
            let master = master.ok_or_else(|| error(line.number, "its master is not there"))?;
            self.nodes[index].master = Some(master);
            self.nodes[master].set(Flags::MIGRATE_TO);
        }
        for (first, last) in &line.slots {
            if let Some(slot) = (*first..=*last).find(|slot| self.owner(*slot).is_some()) {
                return Err(error(line.number, format!("slot {slot} has two owners")));
            }
            self.set_owners(&SlotSet::of(*first..=*last), Some(index));
        }
        for open in &line.open {
            let peer = self.nodes.find(open.peer);
            let peer = peer.ok_or_else(|| error(line.number, "an open slot's node is unknown"))?;
            match open.is_importing {
                true => self.importing.insert(open.slot, peer),
                false => self.migrating.insert(open.slot, peer),
            };
        }
        Ok(())
    }

    fn restore_taken(&mut self, taken: &[OpenSlot]) {
        for open in taken {
            let giver = self.nodes.find(open.peer).filter(|giver| *giver != self.me);
            if let Some(giver) = giver.filter(|_| self.owner(open.slot) == Some(self.me)) {
                self.note_taken(open.slot, giver);
            }
        }
    }

    /// An epoch that a node has is one that was seen.
    fn restore_epoch(&mut self) {
        let greatest = self.nodes.iter().map(|(_, node)| node.config_epoch).max().unwrap_or(0);
        self.current_epoch = self.current_epoch.max(greatest);
    }
}

#[derive(Debug)]
struct Lines {
    nodes: Vec<Line>,
    vars: Vars,
}

#[derive(Debug, Default)]
struct Vars {
    /// The greatest, and that of the last vote.
    epochs: (u64, u64),
    /// Stretches of slots that were given away.
    released: Vec<(u16, u16)>,
    /// Slots that were taken, and from whom.
    taken: Vec<OpenSlot>,
}

#[derive(Debug)]
struct Line {
    number: usize,
    id: NodeId,
    address: Address,
    hostname: Option<Arc<str>>,
    flags: Flags,
    master: Option<NodeId>,
    epoch: u64,
    slots: Vec<(u16, u16)>,
    open: Vec<OpenSlot>,
}

#[derive(Debug)]
struct OpenSlot {
    slot: u16,
    peer: NodeId,
    is_importing: bool,
}

fn error(line: usize, what: impl Into<String>) -> ConfigError {
    ConfigError { line, what: what.into() }
}

fn parse_lines(text: &str) -> Result<Lines, ConfigError> {
    let mut nodes = Vec::new();
    let mut all_vars = None;
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let number = index + 1;
        match line.strip_prefix("vars ") {
            Some(_) if all_vars.is_some() => return Err(error(number, "vars are there twice")),
            Some(vars) => {
                all_vars = Some(parse_vars(vars).map_err(|what| error(number, what))?);
            }
            None => nodes.push(parse_line(number, line).map_err(|what| error(number, what))?),
        }
    }
    // The file ends with them: without them it was cut off, and a vote may be missing.
    let end = text.lines().count();
    let vars = all_vars.ok_or_else(|| error(end, "the line with the epochs is missing"))?;
    Ok(Lines { nodes, vars })
}

/// Names and values. Other programs may have names of their own.
fn parse_vars(text: &str) -> Result<Vars, String> {
    let bad = || "vars cannot be read".to_owned();
    let words: Vec<_> = text.split(' ').collect();
    let (mut current, mut vote) = (None, None);
    let (mut released, mut taken) = (Vec::new(), Vec::new());
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(bad()) };
        match *name {
            "currentEpoch" => current = Some(parse_epoch(value)?),
            "lastVoteEpoch" => vote = Some(parse_epoch(value)?),
            RELEASED_SLOTS => {
                let ranges = value.split(',').map(parse_range).collect::<Option<_>>();
                released = ranges.ok_or_else(bad)?;
            }
            TAKEN_SLOTS => {
                let slots = value.split(',').map(parse_open).collect::<Option<_>>();
                taken = slots.ok_or_else(bad)?;
            }
            _ => {}
        }
    }
    let epochs = current.zip(vote).ok_or_else(bad)?;
    Ok(Vars { epochs, released, taken })
}

fn parse_epoch(text: &str) -> Result<u64, String> {
    let epoch: u64 = text.parse().map_err(|_| format!("{text:?} is not an epoch"))?;
    let bad = || format!("the epoch {epoch} leaves no room for those of later failovers");
    Some(epoch).filter(|epoch| *epoch <= IN_FILE_MAX).ok_or_else(bad)
}

fn parse_line(number: usize, line: &str) -> Result<Line, String> {
    let mut words = line.split(' ');
    let mut next = |what: &str| words.next().ok_or(format!("{what} is missing"));
    let id = next("a name")?;
    let id = NodeId::parse(id.as_bytes()).ok_or(format!("{id:?} is not a node's name"))?;
    let place = next("an address")?;
    let (address, hostname) =
        parse_place(place).ok_or(format!("{place:?} is not an address like ip:port@port"))?;
    let flags = parse_flags(next("flags")?)?;
    let master = match next("a master")? {
        "-" => None,
        text => Some(NodeId::parse(text.as_bytes()).ok_or(format!("{text:?} is no master"))?),
    };
    for what in ["the time of a ping", "the time of a pong"] {
        let text = next(what)?;
        text.parse::<u64>().map_err(|_| format!("{what} is {text:?}"))?;
    }
    let epoch = next("an epoch")?;
    let epoch = parse_epoch(epoch)?;
    next("the state of a link")?;
    let (mut slots, mut open) = (Vec::new(), Vec::new());
    for word in words.filter(|word| !word.is_empty()) {
        let bad = || format!("{word:?} are no slots");
        match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            Some(inner) => open.push(parse_open(inner).ok_or_else(bad)?),
            None => slots.push(parse_range(word).ok_or_else(bad)?),
        }
    }
    let epoch = if flags.has(Flags::REPLICA) { 0 } else { epoch };
    if flags.has(Flags::REPLICA) == flags.has(Flags::MASTER) {
        return Err("a node is either master or slave".to_owned());
    }
    Ok(Line { number, id, address, hostname, flags, master, epoch, slots, open })
}

fn parse_flags(text: &str) -> Result<Flags, String> {
    let mut flags = Flags::default();
    for word in text.split(',').filter(|word| *word != "noflags") {
        let known = WORDS.iter().find(|(_, known)| *known == word);
        let (flag, _) = known.ok_or(format!("{word:?} is not a flag"))?;
        flags = flags.with(*flag);
    }
    Ok(flags)
}

/// `ip:port@bus[,hostname]`; the address may have colons itself.
fn parse_place(text: &str) -> Option<(Address, Option<Arc<str>>)> {
    let (place, hostname) = match text.split_once(',') {
        Some((place, hostname)) => (place, Some(hostname).filter(|name| !name.is_empty())),
        None => (text, None),
    };
    let (rest, bus_port) = place.rsplit_once('@')?;
    let (ip, port) = rest.rsplit_once(':')?;
    let (port, bus_port) = (port.parse().ok()?, bus_port.parse().ok()?);
    let address = Address { ip: Arc::from(ip), port, plain_port: 0, bus_port };
    Some((address, hostname.map(Arc::from)))
}

fn parse_slot(text: &str) -> Option<u16> {
    text.parse().ok().filter(|slot| *slot < SLOT_COUNT)
}

fn parse_range(text: &str) -> Option<(u16, u16)> {
    match text.split_once('-') {
        Some((first, last)) => {
            let (first, last) = (parse_slot(first)?, parse_slot(last)?);
            (first <= last).then_some((first, last))
        }
        None => parse_slot(text).map(|slot| (slot, slot)),
    }
}

/// `slot->-node` is on its way out, `slot-<-node` on its way in.
fn parse_open(text: &str) -> Option<OpenSlot> {
    let (slot, peer, is_importing) = match text.split_once("->-") {
        Some((slot, peer)) => (slot, peer, false),
        None => text.split_once("-<-").map(|(slot, peer)| (slot, peer, true))?,
    };
    let peer = NodeId::parse(peer.as_bytes())?;
    Some(OpenSlot { slot: parse_slot(slot)?, peer, is_importing })
}

fn range_text((first, last): (u16, u16)) -> String {
    match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    }
}
