//! Nodes that took over, as those hear of it who were not there.

use std::sync::Arc;

use store_cluster::{Body, FailoverMode, Flags, Header, NodeId, Settings, SlotSet};

use crate::claims::tell;
use crate::epochs::header_of;
use crate::town::{Town, address, id};

fn followed_by(town: &Town, number: usize) -> Option<NodeId> {
    let node = &town.nodes[number];
    node.me().master.map(|master| node.nodes()[master].id)
}

#[test]
fn who_is_followed_has_taken_over_though_it_was_never_heard() {
    let mut town = Town::new(2);
    // The fourth node took over and died. The first follows it, says so to the fifth, and dies.
    let header = Header {
        master: Some(id(3)),
        flags: Flags::REPLICA,
        current_epoch: 50,
        config_epoch: 50,
        slots: Arc::new(SlotSet::of(0..5_500)),
        ..header_of(&mut town, 0)
    };
    tell(&mut town, (0, 4), header, Body::Pong(Vec::new()));
    assert_eq!(town.owner_of(4, 0), Some(id(3)));
    assert_eq!(followed_by(&town, 4), Some(id(3)), "of the other two each follows the other");
    // Somebody gets the slots, so that the dead one has none left.
    let slots = Arc::new(SlotSet::of(0..11_000));
    let header = Header { config_epoch: 51, slots, ..header_of(&mut town, 1) };
    tell(&mut town, (1, 4), header, Body::Pong(Vec::new()));
    assert_eq!(followed_by(&town, 4), Some(id(1)));
}

#[test]
fn what_a_replica_said_before_it_was_promoted_comes_too_late() {
    let mut town = Town::new(1);
    let before = header_of(&mut town, 3);
    let now = town.time();
    town.nodes[3].fail_over(now, FailoverMode::Takeover).expect("the town is sound");
    town.settle();
    assert_eq!(town.owner_of(1, 0), Some(id(3)));
    tell(&mut town, (3, 1), before, Body::Pong(Vec::new()));
    assert_eq!(town.owner_of(1, 0), Some(id(3)), "nobody would serve its slots");
}

/// The others hear its pings, and their connections to it do not open: the system that it runs on
/// was down, and is knocked at ever more rarely.
#[test]
fn who_is_heard_before_it_is_reached_is_told_of_its_heir_all_the_same() {
    let mut town = Town::new(1);
    town.is_silent[0] = true;
    town.run(6_000);
    assert_eq!(town.owner_of(1, 0), Some(id(3)));
    (1..4).for_each(|other| town.cut(other, 0));
    (town.is_silent[0], town.is_silent[3]) = (false, true);
    town.run(300);
    assert_eq!(town.owner_of(0, 0), Some(id(3)), "there would be two that serve them");
}

/// Its master's clients wait for ten seconds, and it may try for five.
#[test]
fn votes_for_a_failover_by_hand_that_come_after_its_time_do_not_count() {
    let mut town = Town::new(1);
    let settings = Settings { node_timeout: 15_000, address: address(3), ..Settings::default() };
    let now = town.time();
    town.nodes[3].set_settings(now, settings);
    (town.is_silent[1], town.is_silent[2]) = (true, true);
    town.nodes[3].fail_over(now, FailoverMode::Plain).expect("the town is sound");
    town.run(1_000);
    assert!(town.nodes[3].me().is_replica(), "two of three votes are missing");
    let epoch = town.nodes[3].current_epoch();
    // It stands still, and hears of them before it looks at its clock.
    town.now += 11_000;
    for voter in [1, 2] {
        let header = Header { current_epoch: epoch, ..header_of(&mut town, voter) };
        tell(&mut town, (voter, 3), header, Body::AuthAck);
    }
    assert!(town.nodes[3].me().is_replica(), "its master's clients write again");
}

#[test]
fn a_master_does_not_call_its_clients_paused_when_that_is_over_before_a_replica_has_tried() {
    let mut town = Town::new(1);
    (town.is_silent[1], town.is_silent[2]) = (true, true);
    let now = town.time();
    town.nodes[3].fail_over(now, FailoverMode::Plain).expect("the town is sound");
    town.settle();
    town.run(1_000);
    assert!(header_of(&mut town, 0).is_paused);
    let began_at = town.now - 1_200;
    town.run(5_000);
    // Who tries again now would stand at once, and win when they are not paused any more.
    while town.now < began_at + 9_500 {
        town.run(100);
        assert!(!header_of(&mut town, 0).is_paused, "{} ms", town.now - began_at);
    }
    assert!(town.nodes[3].me().is_replica());
}

/// The master has just loaded its keys, and counts from where the replica does, which has none.
#[test]
fn a_replica_without_its_masters_data_does_not_take_over_by_hand_whatever_its_offset() {
    let mut town = Town::new(1);
    town.has_nothing[3] = true;
    let now = town.time();
    town.nodes[3].fail_over(now, FailoverMode::Plain).expect("the town is sound");
    town.run(4_000);
    assert_eq!(town.owner_of(1, 0), Some(id(0)), "all keys would be lost");
    town.has_nothing[3] = false;
    town.run(800);
    assert_eq!(town.owner_of(1, 0), Some(id(3)), "it has them now");
}

/// A master that starts again does not know that its clients were paused.
#[test]
fn a_failover_by_hand_ends_when_its_master_starts_again() {
    let mut town = Town::new(1);
    (town.is_silent[1], town.is_silent[2]) = (true, true);
    let now = town.time();
    town.nodes[3].fail_over(now, FailoverMode::Plain).expect("the town is sound");
    town.settle();
    town.run(500);
    let file = town.nodes[0].config_text();
    town.restart(0, &file);
    town.run(300);
    (town.is_silent[1], town.is_silent[2]) = (false, false);
    town.run(3_500);
    assert_eq!(town.owner_of(1, 0), Some(id(0)), "its clients may have written");
}

/// A master watches nobody's replicas.
#[test]
fn a_replica_that_was_a_master_meanwhile_waits_again_before_it_moves() {
    let mut town = Town::new(3);
    let now = town.time();
    town.nodes[5].replicate(now, id(1), true).expect("the town is sound");
    town.run(3_000);
    let take_over = |town: &mut Town, number: usize| {
        let now = town.time();
        town.nodes[number].fail_over(now, FailoverMode::Takeover).expect("the town is sound");
        town.run(500);
    };
    town.is_silent[5] = true;
    town.run(3_000);
    take_over(&mut town, 3);
    town.is_silent[5] = false;
    town.run(10_000);
    assert!(town.nodes[3].me().is_master());
    // The second master has lost its replica a moment ago when there is one to spare again.
    town.is_silent[5] = true;
    town.run(2_500);
    take_over(&mut town, 0);
    assert_eq!(followed_by(&town, 3), Some(id(0)));
    town.run(2_000);
    assert_eq!(followed_by(&town, 3), Some(id(0)), "it may come back");
    town.run(8_000);
    assert_eq!(followed_by(&town, 3), Some(id(1)), "it did not");
}
