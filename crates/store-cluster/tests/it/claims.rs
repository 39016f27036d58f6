//! Claims that others tell of, in part, late, or instead of a node that is down.

use std::sync::Arc;

use store_cluster::{
    Body, Cluster, Ends, Header, LinkId, Message, NodeId, Output, Refusal, RouteRequest, Settings,
    SlotChange, SlotSet, Update, Verdict,
};
use store_resp::slot::slot_of;

use crate::epochs::header_of;
use crate::town::{TIMEOUT, Town, address, id};

/// A node hears a packet of another one.
pub(crate) fn tell(town: &mut Town, (from, to): (usize, usize), header: Header, body: Body) {
    let (peer, local, now) = (address(from), address(to), town.time());
    let ends = Ends { peer: &peer.ip, local: &local.ip };
    let message = Message { header, body };
    town.nodes[to].handle_message(now, LinkId::Inbound(999), ends, &message);
    while !matches!(town.nodes[to].poll_output(), Output::WaitUntil(_)) {}
}

/// `from` tells `to` about a third node.
fn tell_about(town: &mut Town, ends: (usize, usize), owner: NodeId, epoch: u64, slots: SlotSet) {
    let header = header_of(town, ends.0);
    let update = Update { id: owner, config_epoch: epoch, slots: Arc::new(slots) };
    tell(town, ends, header, Body::Update(update));
}

#[test]
fn who_hears_of_a_new_owner_in_part_hears_the_rest_from_others() {
    let mut town = Town::new(1);
    // The second imports a slot and so does not know that it is the replica's now.
    tell_about(&mut town, (1, 0), id(3), 50, SlotSet::of(0..100));
    assert_eq!(town.owner_of(0, 99), Some(id(3)));
    assert_eq!(town.owner_of(0, 100), Some(id(0)));
    tell_about(&mut town, (2, 0), id(3), 50, SlotSet::of(0..5_500));
    assert_eq!(town.owner_of(0, 100), Some(id(3)));
    assert!(town.nodes[0].me().is_replica(), "it has none left");
}

#[test]
fn what_others_do_not_tell_of_an_owner_is_not_given_up_by_it() {
    let mut town = Town::new(0);
    tell_about(&mut town, (1, 2), id(0), 50, SlotSet::of(0..100));
    // An old claim of somebody else.
    let header = header_of(&mut town, 1);
    let slots = SlotSet::of((5_500..11_000).chain([200]));
    let header = Header { slots: Arc::new(slots), config_epoch: 49, ..header };
    tell(&mut town, (1, 2), header, Body::Pong(Vec::new()));
    assert_eq!(town.owner_of(2, 200), Some(id(0)));
}

#[test]
fn of_two_with_one_epoch_the_one_that_works_has_the_slots() {
    for fails in [false, true] {
        let mut town = Town::new(1);
        let claim = |town: &mut Town, from: usize| {
            let slots = Arc::new(SlotSet::of(0..5_500));
            let header = header_of(town, from);
            let header = Header { slots, config_epoch: 50, master: None, ..header };
            tell(town, (from, 2), header, Body::Pong(Vec::new()));
        };
        claim(&mut town, 3);
        assert_eq!(town.owner_of(2, 0), Some(id(3)));
        if fails {
            let header = header_of(&mut town, 1);
            tell(&mut town, (1, 2), header, Body::Fail(id(3)));
        }
        claim(&mut town, 0);
        // While both work, one of them takes another epoch.
        assert_eq!(town.owner_of(2, 0), Some(id(if fails { 0 } else { 3 })));
    }
}

#[test]
fn a_connection_that_does_not_open_is_tried_again_although_its_node_is_heard() {
    assert_dialled_again(false);
}

/// The other end started again and has forgotten it, and nobody says so.
#[test]
fn a_connection_without_answers_is_replaced_although_its_node_is_heard() {
    assert_dialled_again(true);
}

fn assert_dialled_again(opens: bool) {
    let mut town = Town::new(0);
    let header = header_of(&mut town, 1);
    let file = town.nodes[0].config_text();
    let settings = Settings { node_timeout: TIMEOUT, address: address(0), ..Settings::default() };
    let mut node = Cluster::restore(town.time(), &file, settings, 1).expect("the town is sound");
    let (peer, local) = (address(1), address(0));
    let mut dialled = 0;
    for _ in 0..30 {
        town.now += TIMEOUT / 10;
        let now = town.time();
        let ends = Ends { peer: &peer.ip, local: &local.ip };
        let ping = Message { header: header.clone(), body: Body::Ping(Vec::new()) };
        node.handle_message(now, LinkId::Inbound(1), ends, &ping);
        node.handle_tick(now);
        loop {
            match node.poll_output() {
                Output::Dial { address: to, link } => {
                    dialled += usize::from(to == address(1));
                    if opens {
                        node.handle_link_up(now, link);
                    }
                }
                Output::WaitUntil(_) => break,
                _ => {}
            }
        }
    }
    assert!((2..=4).contains(&dialled), "{dialled} times in three time-outs");
}

/// Opens slot 0, which moves from the first node to the second, and slot 6,000, the other way.
fn open_both(town: &mut Town) {
    for (slot, giver, taker) in [(0, 0, 1), (6_000, 1, 0)] {
        let now = town.time();
        let importing = SlotChange::Importing(id(giver));
        town.nodes[taker].set_slot(now, slot, importing, false).expect("the town is sound");
        let migrating = SlotChange::Migrating(id(taker));
        town.nodes[giver].set_slot(now, slot, migrating, false).expect("the town is sound");
    }
    town.run(1_000);
}

fn take(town: &mut Town, slot: u16, taker: usize) {
    let now = town.time();
    town.nodes[taker].set_slot(now, slot, SlotChange::Node(id(taker)), true).expect("sound");
}

#[test]
fn slots_that_move_past_each_other_are_kept_by_who_took_them() {
    let mut town = Town::new(1);
    open_both(&mut town);
    // Both take theirs before either hears of the other.
    take(&mut town, 0, 1);
    take(&mut town, 6_000, 0);
    town.run(3_000);
    for number in 0..4 {
        assert_eq!(town.owner_of(number, 0), Some(id(1)), "node {number}");
        assert_eq!(town.owner_of(number, 6_000), Some(id(0)), "node {number}");
    }
    let lost = |node: usize, slot: u16| {
        town.dropped.iter().any(|(number, slots)| *number == node && slots.contains(slot))
    };
    assert!(!lost(1, 0) && !lost(0, 6_000), "the keys are there: {:?}", town.dropped);
    assert!(town.nodes.iter().all(|node| node.open_slots().is_empty()));
}

#[test]
fn a_taker_that_starts_again_still_knows_from_whom_it_took() {
    let mut town = Town::new(0);
    open_both(&mut town);
    town.is_silent[0] = true;
    take(&mut town, 0, 1);
    let file = town.nodes[1].config_text();
    assert!(file.contains(&format!(" tenureTakenSlots 0-<-{}", id(0))), "{file}");
    town.restart(1, &file);
    // The giver has not heard of it, and has a newer epoch meanwhile.
    let header = header_of(&mut town, 0);
    let header = Header { config_epoch: 50, ..header };
    tell(&mut town, (0, 1), header, Body::Pong(Vec::new()));
    assert_eq!(town.owner_of(1, 0), Some(id(1)));
    assert!(town.nodes[1].config_text().contains(" tenureTakenSlots "));
}

#[test]
fn a_giver_that_has_its_slot_again_is_believed_in_the_end() {
    let mut town = Town::new(1);
    open_both(&mut town);
    town.is_silent[0] = true;
    take(&mut town, 0, 1);
    // Meanwhile an operator puts an end to the move, and the giver gets a newer epoch.
    let now = town.time();
    town.nodes[0].set_slot(now, 0, SlotChange::Stable, true).expect("it is its own");
    let file = town.nodes[0].config_text();
    let file = file.replace("myself,master - 0 0 1 ", "myself,master - 0 0 50 ");
    let file = file.replace("currentEpoch ", "currentEpoch 5");
    town.restart(0, &file);
    town.is_silent[0] = false;
    town.run(TIMEOUT);
    let key = (0..).map(|n: u32| n.to_string()).find(|key| slot_of(key.as_bytes()) == 0).unwrap();
    let request = RouteRequest { keys: &[key.as_bytes()], ..RouteRequest::default() };
    let verdict = town.nodes[1].route(request, |_| true);
    assert_eq!(verdict, Verdict::Refused(Refusal::TryAgain), "two would serve it");
    town.run(20 * TIMEOUT);
    let owners: Vec<_> = (0..4).map(|number| town.owner_of(number, 0)).collect();
    assert_eq!(owners, [Some(id(0)); 4], "the two would argue for ever");
}
