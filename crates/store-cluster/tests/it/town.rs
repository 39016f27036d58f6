//! A few nodes whose packets arrive at once, and a clock that the test moves.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use store_cluster::{
    Address, Cluster, DataState, Ends, FailoverMode, LinkId, Message, NodeId, Now, Output,
    Settings, SlotSet,
};

pub(crate) const TIMEOUT: u64 = 1_000;

/// Nodes by number; links between them are never lost, but a node may be silent.
pub(crate) struct Town {
    pub(crate) nodes: Vec<Cluster>,
    pub(crate) is_silent: Vec<bool>,
    /// Replicas whose first copy of their master's data is not done.
    pub(crate) has_nothing: Vec<bool>,
    pub(crate) now: u64,
    /// Slots that have keys, by node.
    pub(crate) keys: Vec<SlotSet>,
    /// What nodes were told to drop.
    pub(crate) dropped: Vec<(usize, SlotSet)>,
    dialled: Vec<(usize, LinkId, usize)>,
    /// From whom to whom no connection opens.
    closed: BTreeSet<(usize, usize)>,
    mail: VecDeque<(usize, LinkId, usize, Arc<Message>)>,
}

pub(crate) fn id(number: usize) -> NodeId {
    NodeId::from_bytes([number as u8 + 1; 20])
}

pub(crate) fn address(number: usize) -> Address {
    let ip = format!("10.0.0.{}", number + 1);
    Address { ip: ip.into(), port: 7000, plain_port: 0, bus_port: 17_000 }
}

impl Town {
    /// Three masters that share the slots, and replicas of the first.
    pub(crate) fn new(replicas: usize) -> Self {
        let mut town = Self {
            nodes: Vec::new(),
            is_silent: vec![false; 3 + replicas],
            has_nothing: vec![false; 3 + replicas],
            now: 10_000,
            keys: vec![SlotSet::default(); 3 + replicas],
            dropped: Vec::new(),
            dialled: Vec::new(),
            closed: BTreeSet::new(),
            mail: VecDeque::new(),
        };
        for number in 0..3 + replicas {
            let settings =
                Settings { node_timeout: TIMEOUT, address: address(number), ..Settings::default() };
            let mut node = Cluster::new(town.time(), id(number), settings, number as u64);
            if number < 3 {
                let first = 5_500 * number as u16;
                let slots = SlotSet::of(first..(first + 5_500).min(16_384));
                node.add_slots(town.time(), &slots).expect("the town is sound");
                node.set_config_epoch(town.time(), number as u64 + 1).expect("the town is sound");
            }
            town.nodes.push(node);
        }
        for number in 1..3 + replicas {
            let now = town.time();
            town.nodes[0].meet(now, address(number)).expect("the town is sound");
        }
        town.run(5_000);
        for number in 3..3 + replicas {
            let now = town.time();
            town.nodes[number].replicate(now, id(0), true).expect("the town is sound");
        }
        town.run(3_000);
        assert!(town.nodes.iter().all(Cluster::is_ok), "the town works");
        town
    }

    pub(crate) fn time(&self) -> Now {
        Now { monotonic_ms: self.now, unix_ms: 1_700_000_000_000 + self.now }
    }

    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.now += 100;
            for number in 0..self.nodes.len() {
                if !self.is_silent[number] {
                    let now = self.time();
                    let in_step_at = Some(self.now).filter(|_| !self.has_nothing[number]);
                    let data = DataState { offset: 100, in_step_at };
                    self.nodes[number].handle_data(data);
                    self.nodes[number].handle_tick(now);
                }
                self.carry_out(number);
                self.deliver();
            }
        }
    }

    /// The connection from one node to another is lost, and no other one opens.
    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.closed.insert((from, to));
        let place = self.dialled.iter().rposition(|d| d.0 == from && d.2 == to);
        let (link, now) = (self.dialled[place.expect("the town is sound")].1, self.time());
        self.nodes[from].handle_link_down(now, link);
    }

    /// From now on it opens again.
    pub(crate) fn mend(&mut self, from: usize, to: usize) {
        self.closed.remove(&(from, to));
    }

    /// A node starts again with what its file has.
    pub(crate) fn restart(&mut self, number: usize, file: &str) {
        let settings =
            Settings { node_timeout: TIMEOUT, address: address(number), ..Settings::default() };
        let node = Cluster::restore(self.time(), file, settings, 1);
        self.nodes[number] = node.expect("the town is sound");
        // Its connections are gone, and their names are given again.
        let own = self.dialled.iter_mut().filter(|dialled| dialled.0 == number);
        own.for_each(|dialled| dialled.0 = usize::MAX);
    }

    /// What the nodes want done is done, and all mail read.
    pub(crate) fn settle(&mut self) {
        for number in 0..self.nodes.len() {
            self.carry_out(number);
        }
        self.deliver();
    }

    fn deliver(&mut self) {
        while let Some((to, link, from, message)) = self.mail.pop_front() {
            let may_leave = self.nodes[from].may_say(&message);
            if self.is_silent[to] || self.is_silent[from] || !may_leave {
                continue;
            }
            let (peer, local) = (address(from), address(to));
            let ends = Ends { peer: &peer.ip, local: &local.ip };
            let now = self.time();
            self.nodes[to].handle_message(now, link, ends, &message);
            self.carry_out(to);
        }
    }

    fn carry_out(&mut self, number: usize) {
        loop {
            match self.nodes[number].poll_output() {
                Output::Dial { link, address: to } => {
                    let peer = (0..self.nodes.len())
                        .find(|n| address(*n).ip == to.ip)
                        .expect("the town is sound");
                    self.dialled.push((number, link, peer));
                    let now = self.time();
                    match self.closed.contains(&(number, peer)) {
                        true => self.nodes[number].handle_link_down(now, link),
                        false => self.nodes[number].handle_link_up(now, link),
                    }
                }
                Output::Send { link: link @ LinkId::Dialled { .. }, message } => {
                    let place = self
                        .dialled
                        .iter()
                        .position(|d| d.0 == number && d.1 == link)
                        .expect("the town is sound");
                    let to = self.dialled[place].2;
                    self.mail.push_back((to, LinkId::Inbound(place as u64), number, message));
                }
                Output::Send { link: LinkId::Inbound(place), message } => {
                    // A test may have spoken for a node that has no such connection.
                    let end = self.dialled.get(place as usize);
                    if let Some((to, link, _)) = end.filter(|end| end.0 < self.nodes.len()) {
                        self.mail.push_back((*to, *link, number, message));
                    }
                }
                Output::DropSlots(slots) => self.dropped.push((number, *slots)),
                Output::FindKeys { left } => {
                    let (now, keys) = (self.time(), self.keys[number].clone());
                    self.nodes[number].adopt_copied_keys(now, &keys, &left);
                }
                Output::WaitUntil(_) => return,
                _ => {}
            }
        }
    }

    pub(crate) fn owner_of(&self, number: usize, slot: u16) -> Option<NodeId> {
        let node = &self.nodes[number];
        node.owner(slot).map(|owner| node.nodes()[owner].id)
    }
}

#[test]
fn who_meets_one_node_knows_all_and_agrees_on_slots() {
    let town = Town::new(1);
    for number in 0..4 {
        assert_eq!(town.nodes[number].nodes().len(), 4, "node {number}");
        assert_eq!(town.owner_of(number, 0), Some(id(0)));
        assert_eq!(town.owner_of(number, 16_383), Some(id(2)));
        assert_eq!(town.nodes[number].size(), 3);
    }
}

#[test]
fn a_silent_master_is_failed_by_the_majority_and_its_replica_takes_its_slots() {
    let mut town = Town::new(1);
    town.is_silent[0] = true;
    town.run(1_700);
    assert!(town.nodes[1].nodes().iter().any(|(_, node)| !node.is_fine()), "it is missed");
    town.run(5_000);
    for number in 1..4 {
        assert_eq!(town.owner_of(number, 0), Some(id(3)), "node {number}");
        assert!(town.nodes[number].is_ok());
    }
    assert!(!town.nodes[0].me().is_replica());
    town.is_silent[0] = false;
    town.run(4_000);
    assert!(town.nodes[0].me().is_replica(), "the old master follows the new one");
}

#[test]
fn a_master_alone_refuses_within_the_time_out_and_one_suspicion_fails_nobody() {
    let mut town = Town::new(0);
    (town.is_silent[1], town.is_silent[2]) = (true, true);
    town.run(TIMEOUT + 200);
    assert!(!town.nodes[0].is_ok());
    town.run(5_000);
    let failed = town.nodes[0].nodes().iter().filter(|(_, node)| node.is_failed()).count();
    assert_eq!(failed, 0, "it takes a majority");
    (town.is_silent[1], town.is_silent[2]) = (false, false);
    town.run(TIMEOUT - 300);
    assert!(!town.nodes[0].is_ok(), "it waits before it serves again");
    town.run(3_000);
    assert!(town.nodes[0].is_ok());
}

#[test]
fn an_operator_gets_a_failover_in_each_of_three_ways() {
    for mode in [FailoverMode::Plain, FailoverMode::Force, FailoverMode::Takeover] {
        let mut town = Town::new(1);
        let epoch = town.nodes[3].current_epoch();
        let now = town.time();
        town.nodes[3].fail_over(now, mode).expect("the town is sound");
        town.settle();
        town.run(3_000);
        for number in 0..4 {
            assert_eq!(town.owner_of(number, 0), Some(id(3)), "{mode:?}, node {number}");
        }
        assert!(town.nodes[3].me().config_epoch > epoch, "{mode:?}");
        assert!(town.nodes[0].me().is_replica(), "{mode:?}");
    }
}

#[test]
fn a_takeover_needs_nobody_and_a_plain_failover_needs_the_master() {
    let mut town = Town::new(1);
    (0..3).for_each(|number| town.is_silent[number] = true);
    town.run(500);
    let now = town.time();
    town.nodes[3].fail_over(now, FailoverMode::Takeover).expect("the town is sound");
    assert!(town.nodes[3].me().is_master());
    assert_eq!(town.owner_of(3, 0), Some(id(3)));
}

#[test]
fn two_masters_with_one_epoch_end_with_two() {
    // Both replicas came as masters without an epoch.
    let town = Town::new(2);
    let epochs = [3, 4].map(|number: usize| town.nodes[number].me().config_epoch);
    assert_ne!(epochs[0], epochs[1]);
    assert!(epochs[0] > 3, "the one with the smaller name took the next: {epochs:?}");
}

/// A disk that is slow holds packets back, and the connection is closed meanwhile.
#[test]
fn what_an_election_says_is_said_again_when_a_connection_was_lost() {
    let connections = [(3, 1), (3, 2), (1, 3), (2, 3)];
    for lost in [&connections[..2], &connections[2..]] {
        let mut town = Town::new(1);
        let now = town.time();
        town.is_silent[0] = true;
        town.run(1_000);
        for (from, to) in lost {
            town.cut(*from, *to);
        }
        town.nodes[3].fail_over(now, FailoverMode::Force).expect("the town is sound");
        town.run(300);
        assert!(town.nodes[3].me().is_replica(), "nobody heard it, or was heard: {lost:?}");
        for (from, to) in lost {
            town.mend(*from, *to);
        }
        town.run(300);
        assert_eq!(town.owner_of(1, 0), Some(id(3)), "{lost:?}");
    }
}
