//! Where requests belong, in the order of Redis 7.0.

use store_cluster::{RouteRequest, SlotChange, Verdict};

use crate::town::{Town, id};

/// The error, or nothing.
fn said(town: &Town, number: usize, request: RouteRequest<'_>, here: &[&[u8]]) -> String {
    match town.nodes[number].route(request, |key| here.contains(&key)) {
        Verdict::Here => String::new(),
        Verdict::Refused(refusal) => refusal.to_string(),
    }
}

fn keys<'a>(keys: &'a [&'a [u8]]) -> RouteRequest<'a> {
    RouteRequest { keys, ..RouteRequest::default() }
}

// Slots: foo 12182 (node 2), bar 5061 (node 0).
#[test]
fn a_key_is_served_by_its_owner_and_elsewhere_it_is_moved() {
    let town = Town::new(1);
    assert_eq!(said(&town, 0, keys(&[]), &[]), "");
    assert_eq!(said(&town, 2, keys(&[b"foo"]), &[]), "");
    assert_eq!(said(&town, 0, keys(&[b"foo"]), &[]), "MOVED 12182 10.0.0.3:7000");
    let crossing = said(&town, 0, keys(&[b"foo", b"bar"]), &[]);
    assert_eq!(crossing, "CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(said(&town, 2, keys(&[b"{foo}a", b"{foo}b"]), &[]), "");
    // A replica serves its master's slots to those who asked for it, and never writes.
    let read = RouteRequest { is_read_only_session: true, ..keys(&[b"bar"]) };
    assert_eq!(said(&town, 3, read, &[]), "");
    assert_eq!(said(&town, 3, keys(&[b"bar"]), &[]), "MOVED 5061 10.0.0.1:7000");
    let write = RouteRequest { is_write: true, ..read };
    assert_eq!(said(&town, 3, write, &[]), "MOVED 5061 10.0.0.1:7000");
    let channel = RouteRequest { is_shard_channel: true, ..keys(&[b"bar"]) };
    assert_eq!(said(&town, 3, channel, &[]), "");
}

#[test]
fn an_open_slot_asks_and_the_other_side_serves_those_who_do() {
    let mut town = Town::new(0);
    let now = town.time();
    town.nodes[0].set_slot(now, 5061, SlotChange::Importing(id(2)), false).unwrap_err();
    town.nodes[2].set_slot(now, 12_182, SlotChange::Migrating(id(0)), true).unwrap();
    town.nodes[0].set_slot(now, 12_182, SlotChange::Importing(id(2)), false).unwrap();
    let both: &[&[u8]] = &[b"foo", b"{foo}b"];
    assert_eq!(said(&town, 2, keys(&[b"foo"]), &[b"foo"]), "");
    assert_eq!(said(&town, 2, keys(&[b"foo"]), &[]), "ASK 12182 10.0.0.1:7000");
    let again = "TRYAGAIN Multiple keys request during rehashing of slot";
    assert_eq!(said(&town, 2, keys(both), &[b"foo"]), again);
    let migrate = RouteRequest { is_migrate: true, ..keys(&[b"foo"]) };
    assert_eq!(said(&town, 2, migrate, &[]), "");
    assert_eq!(said(&town, 0, keys(&[b"foo"]), &[]), "MOVED 12182 10.0.0.3:7000");
    let asking = RouteRequest { is_asking: true, ..keys(&[b"foo"]) };
    assert_eq!(said(&town, 0, asking, &[]), "");
    let asking = RouteRequest { is_asking: true, ..keys(both) };
    assert_eq!(said(&town, 0, asking, &[b"foo"]), again);
    // One key that is named twice, as a transaction does that begins one.
    let asking = RouteRequest { is_asking: true, ..keys(&[b"foo", b"foo"]) };
    assert_eq!(said(&town, 0, asking, &[]), "");
    // Keys in the way, then not: the slot changes hands.
    let refused = town.nodes[2].set_slot(now, 12_182, SlotChange::Node(id(0)), true).unwrap_err();
    assert!(refused.to_string().contains("still hold keys"), "{refused}");
    town.nodes[0].set_slot(now, 12_182, SlotChange::Node(id(0)), true).unwrap();
    town.settle();
    town.run(1_000);
    assert_eq!(said(&town, 1, keys(&[b"foo"]), &[]), "MOVED 12182 10.0.0.1:7000");
    assert_eq!(said(&town, 0, keys(&[b"foo"]), &[]), "");
}

#[test]
fn a_cluster_that_is_down_says_so_before_it_moves_anybody() {
    let mut town = Town::new(0);
    (town.is_silent[1], town.is_silent[2]) = (true, true);
    town.run(3_000);
    assert_eq!(said(&town, 0, keys(&[b"foo"]), &[]), "CLUSTERDOWN The cluster is down");
    let crossing = said(&town, 0, keys(&[b"foo", b"bar"]), &[]);
    assert_eq!(crossing, "CROSSSLOT Keys in request don't hash to the same slot");
    let slots = store_cluster::SlotSet::of([12_182]);
    let now = town.time();
    town.nodes[0].delete_slots(now, &slots).unwrap();
    let unowned = said(&town, 0, keys(&[b"foo", b"bar"]), &[]);
    assert_eq!(unowned, "CLUSTERDOWN Hash slot not served");
    let channel = RouteRequest { is_shard_channel: true, ..keys(&[b"bar"]) };
    assert_eq!(said(&town, 0, channel, &[]), "");
}
