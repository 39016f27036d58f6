//! Nodes whose nodes.conf cannot be written.

use std::sync::Arc;

use store_cluster::{AdminError, Body, Ends, FailoverMode, Header, LinkId, Message, SlotSet};

use crate::epochs::header_of;
use crate::town::{Town, id};

/// The first master is lost, and the file of a node with it.
fn lose_master(town: &mut Town, without_file: &[usize]) {
    for number in without_file {
        let (now, saved) = (town.time(), town.nodes[*number].claim());
        town.nodes[*number].handle_file_lost(now, saved);
    }
    town.is_silent[0] = true;
    town.run(12_000);
}

#[test]
fn who_cannot_keep_a_vote_gives_none_until_it_can() {
    let mut town = Town::new(1);
    // Two of three are needed, and one of them cannot.
    lose_master(&mut town, &[1]);
    assert!(town.nodes[3].me().is_replica(), "it has one vote");
    assert_eq!(town.owner_of(2, 0), Some(id(0)));
    let now = town.time();
    town.nodes[1].handle_file_written(now);
    town.run(12_000);
    for number in 1..4 {
        assert_eq!(town.owner_of(number, 0), Some(id(3)), "node {number}");
    }
}

#[test]
fn who_cannot_keep_that_it_won_does_not_stand() {
    let mut town = Town::new(2);
    lose_master(&mut town, &[3]);
    for number in 1..5 {
        assert_eq!(town.owner_of(number, 0), Some(id(4)), "node {number}");
    }
    let now = town.time();
    for mode in [FailoverMode::Plain, FailoverMode::Force, FailoverMode::Takeover] {
        assert_eq!(town.nodes[3].fail_over(now, mode), Err(AdminError::Unsaved));
    }
    assert!(!town.nodes[3].bump_epoch(now));
}

#[test]
fn a_claim_that_is_not_kept_is_neither_served_nor_told_until_it_is() {
    let mut town = Town::new(1);
    town.is_silent[0] = true;
    let (now, saved) = (town.time(), town.nodes[3].claim());
    town.nodes[3].fail_over(now, FailoverMode::Takeover).unwrap();
    // Only now it is noticed.
    town.nodes[3].handle_file_lost(now, saved);
    town.settle();
    assert!(town.nodes[3].me().is_master() && !town.nodes[3].is_ok());
    town.run(1_000);
    assert_eq!(town.owner_of(1, 0), Some(id(0)), "nobody heard of it");
    assert!(!town.nodes[3].is_ok());
    let now = town.time();
    town.nodes[3].handle_file_written(now);
    town.run(5_000);
    for number in 1..4 {
        assert_eq!(town.owner_of(number, 0), Some(id(3)), "node {number}");
        assert!(town.nodes[number].is_ok(), "node {number}");
    }
}

#[test]
fn a_master_whose_claim_is_kept_goes_on_with_that() {
    let mut town = Town::new(0);
    let (now, saved) = (town.time(), town.nodes[0].claim());
    let epoch = saved.unwrap();
    assert!(town.nodes[0].bump_epoch(now));
    town.nodes[0].handle_file_lost(now, saved);
    town.settle();
    town.run(3_000);
    let told = |town: &Town| {
        let node = &town.nodes[1];
        node.nodes()[node.nodes().find(id(0)).unwrap()].config_epoch
    };
    assert!(town.nodes[0].is_ok() && town.nodes[1].is_ok(), "it serves");
    assert_eq!(told(&town), epoch, "it tells what it has kept");
    // Somebody claims its slots, and is told that it is behind.
    let slots = Arc::new(SlotSet::of(0..11_000));
    let header = Header { slots, ..header_of(&mut town, 1) };
    let message = Message { header, body: Body::Pong(Vec::new()) };
    let now = town.time();
    town.nodes[0].handle_message(now, LinkId::Inbound(999), Ends::default(), &message);
    town.settle();
    assert_eq!(told(&town), epoch, "it tells what it has kept");
    let now = town.time();
    town.nodes[0].handle_file_written(now);
    town.run(3_000);
    assert!(told(&town) > epoch);
}
