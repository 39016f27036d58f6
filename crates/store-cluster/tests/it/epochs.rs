//! Epochs that would leave none for later failovers.

use store_cluster::wire::{decode, encode};
use store_cluster::{
    Body, Cluster, Ends, Event, Header, LinkId, Message, Output, Settings, Update,
};

use crate::town::{Town, address, id};

/// The greatest epoch that is believed whoever claims it.
const EPOCH_MAX: u64 = u64::MAX / 4;

/// The head of a packet that this node sends.
pub(crate) fn header_of(town: &mut Town, number: usize) -> Header {
    loop {
        town.now += 100;
        let now = town.time();
        town.nodes[number].handle_tick(now);
        loop {
            match town.nodes[number].poll_output() {
                Output::Send { message, .. } => return message.header.clone(),
                Output::WaitUntil(_) => break,
                _ => {}
            }
        }
    }
}

/// Every node but the sender hears it, as bytes. What their logs say of epochs.
fn tell_all(town: &mut Town, from: usize, message: &Message) -> Vec<Event> {
    let message = decode(&encode(message)).expect("a whole packet");
    let mut told = Vec::new();
    for number in (0..town.nodes.len()).filter(|number| *number != from) {
        let (peer, local, now) = (address(from), address(number), town.time());
        let ends = Ends { peer: &peer.ip, local: &local.ip };
        town.nodes[number].handle_message(now, LinkId::Inbound(999), ends, &message);
        loop {
            match town.nodes[number].poll_output() {
                Output::Log(event @ Event::EpochRefused { .. }) => told.push(event),
                Output::WaitUntil(_) => break,
                _ => {}
            }
        }
    }
    told
}

/// The first master is lost, and its replica takes its slots.
fn fails_over(mut town: Town) {
    town.is_silent[0] = true;
    town.run(9_000);
    for number in 1..4 {
        assert_eq!(town.owner_of(number, 0), Some(id(3)), "node {number}");
    }
}

#[test]
fn a_packet_with_an_epoch_near_the_end_stops_no_failover_and_is_told_once_a_minute() {
    for epoch in [EPOCH_MAX + 1, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
        for place in 0..3 {
            let mut town = Town::new(1);
            let before = town.nodes[1].current_epoch();
            let mut header = header_of(&mut town, 2);
            let update = Update { id: id(0), config_epoch: epoch, slots: header.slots.clone() };
            let body = match place {
                0 => Body::Update(update),
                _ => Body::Ping(Vec::new()),
            };
            match place {
                1 => header.current_epoch = epoch,
                2 => header.config_epoch = epoch,
                _ => {}
            }
            let message = Message { header, body };
            let told = tell_all(&mut town, 2, &message);
            let peer = "10.0.0.3".to_owned();
            assert_eq!(told, vec![Event::EpochRefused { id: id(2), peer, epoch }; 3]);
            assert_eq!(tell_all(&mut town, 2, &message), []);
            assert_eq!(town.nodes[1].current_epoch(), before);
            fails_over(town);
        }
    }
}

#[test]
fn the_greatest_epoch_that_is_believed_leaves_room_for_failovers() {
    let mut town = Town::new(1);
    let mut header = header_of(&mut town, 2);
    header.current_epoch = EPOCH_MAX;
    let message = Message { header, body: Body::Ping(Vec::new()) };
    assert_eq!(tell_all(&mut town, 2, &message), []);
    town.run(3_000);
    town.is_silent[0] = true;
    town.run(9_000);
    let epoch = town.nodes[3].me().config_epoch;
    assert!(epoch > EPOCH_MAX, "{epoch}");
    let text = town.nodes[3].config_text();
    let read = Cluster::restore(town.time(), &text, Settings::default(), 7);
    assert_eq!(read.expect("it starts again with its file").current_epoch(), epoch);
    fails_over(town);
}

#[test]
fn an_election_is_beyond_the_epochs_of_all_configurations() {
    let mut town = Town::new(1);
    let mut header = header_of(&mut town, 0);
    header.config_epoch = 1_000;
    tell_all(&mut town, 0, &Message { header, body: Body::Ping(Vec::new()) });
    fails_over(town);
}

#[test]
fn an_epoch_near_the_end_in_nodes_conf_is_refused_with_its_line() {
    let town = Town::new(1);
    let text = town.nodes[3].config_text();
    let end = text.lines().count();
    let vars = text.lines().last().expect("a line");
    for (broken, line) in [
        (text.replace(vars, &format!("vars currentEpoch {} lastVoteEpoch 0", u64::MAX)), end),
        (text.replace(vars, &format!("vars currentEpoch 3 lastVoteEpoch {}", i64::MAX)), end),
    ] {
        let error = Cluster::restore(town.time(), &broken, Settings::default(), 7);
        let error = error.expect_err("it is refused");
        assert_eq!(error.line, line);
        assert!(error.to_string().contains("no room"), "{error}");
    }
}
