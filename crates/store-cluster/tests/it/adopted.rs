//! Keys of others' slots that are there after a restart, and after a promotion.

use store_cluster::{Cluster, Output, Role, Settings, SlotChange, SlotSet};

use crate::town::{Town, address, id};

/// A slot of the first master.
const SLOT: u16 = 77;

/// Moves the slot from the first master to the second, as an operator does.
fn give_away(town: &mut Town) {
    let now = town.time();
    let order = |node: &mut Cluster, change| {
        node.set_slot(now, SLOT, change, false).expect("the town is sound")
    };
    order(&mut town.nodes[1], SlotChange::Importing(id(0)));
    order(&mut town.nodes[0], SlotChange::Migrating(id(1)));
    order(&mut town.nodes[1], SlotChange::Node(id(1)));
    order(&mut town.nodes[0], SlotChange::Node(id(1)));
    town.run(1_000);
}

/// What a node is told to drop while the others talk to it.
fn dropped(town: &mut Town, number: usize) -> Vec<u16> {
    town.dropped.clear();
    town.run(3_000);
    let slots = town.dropped.iter().filter(|(node, _)| *node == number);
    slots.flat_map(|(_, slots)| slots.iter().collect::<Vec<_>>()).collect()
}

#[test]
fn keys_of_a_slot_that_was_given_away_go_once_its_owner_claims_it() {
    let mut town = Town::new(0);
    give_away(&mut town);
    let file = town.nodes[0].config_text();
    assert!(file.contains("tenureReleasedSlots 77"), "{file}");
    town.restart(0, &file);
    let now = town.time();
    let adopted = town.nodes[0].adopt_keys(now, &SlotSet::of([SLOT, 78]));
    assert_eq!(adopted.outdated, SlotSet::of([SLOT]));
    assert!(adopted.importing.is_empty() && adopted.taken.is_empty(), "{adopted:?}");
    assert!(town.nodes[0].open_slots().is_empty(), "nothing is shown as importing");

    town.is_silent[1] = true;
    town.run(500);
    assert!(town.dropped.is_empty(), "the owner was not heard");
    let now = town.time();
    let import = SlotChange::Importing(id(1));
    assert!(town.nodes[0].set_slot(now, SLOT, import, true).is_err(), "they must not mix");
    town.is_silent[1] = false;
    assert_eq!(dropped(&mut town, 0), [SLOT]);
    let now = town.time();
    town.nodes[0].set_slot(now, SLOT, import, false).unwrap();
    assert!(!town.nodes[0].config_text().contains("tenureReleasedSlots"));
}

#[test]
fn keys_of_a_slot_that_was_not_given_away_may_be_the_only_copy() {
    let mut town = Town::new(0);
    let old_file = town.nodes[1].config_text();
    give_away(&mut town);
    // The file of the second is from before it got the slot, and the first does not claim it.
    town.restart(1, &old_file);
    let now = town.time();
    let adopted = town.nodes[1].adopt_keys(now, &SlotSet::of([SLOT]));
    assert_eq!(adopted.importing, SlotSet::of([SLOT]));
    assert_eq!(dropped(&mut town, 1), []);
    assert_eq!(town.nodes[1].open_slots(), [SLOT]);
    // And nodes that were never part of a cluster serve what they have.
    let settings = Settings { address: address(9), ..Settings::default() };
    let mut lone = Cluster::new(now, id(9), settings, 9);
    assert_eq!(lone.adopt_keys(now, &SlotSet::of([SLOT])).taken, SlotSet::of([SLOT]));
    assert_eq!(lone.owner(SLOT), Some(lone.my_index()));
}

/// Without the file, real servers and old versions write the line with the epochs alone.
#[test]
fn a_file_of_redis_has_no_released_slots() {
    let mut town = Town::new(0);
    give_away(&mut town);
    let file = town.nodes[0].config_text().replace(" tenureReleasedSlots 77", "");
    town.restart(0, &file);
    let now = town.time();
    let adopted = town.nodes[0].adopt_keys(now, &SlotSet::of([SLOT]));
    assert_eq!(adopted.importing, SlotSet::of([SLOT]));
}

/// The first master imports a slot of the second when its replica takes its place.
#[test]
fn a_promoted_replica_goes_on_importing_and_the_giver_asks_for_it() {
    let mut town = Town::new(1);
    let slot = 6_000;
    let now = town.time();
    town.nodes[0].set_slot(now, slot, SlotChange::Importing(id(1)), false).unwrap();
    town.nodes[1].set_slot(now, slot, SlotChange::Migrating(id(0)), true).unwrap();
    town.keys[3] = SlotSet::of([5, slot]);
    town.is_silent[0] = true;
    town.run(12_000);
    let promoted = &town.nodes[3];
    assert!(promoted.me().is_master(), "the replica took over");
    let from = promoted.importing_from(slot).map(|index| promoted.nodes()[index].id);
    assert_eq!(from, Some(id(1)));
    let giver = &town.nodes[1];
    let to = giver.migrating_to(slot).map(|index| giver.nodes()[index].id);
    assert_eq!(to, Some(id(3)));
}

/// A replica that has not heard yet that keys are gone must not show the slot as importing.
#[test]
fn a_promoted_replica_does_not_import_what_had_left_its_master() {
    let mut town = Town::new(1);
    give_away(&mut town);
    town.keys[3] = SlotSet::of([5, SLOT]);
    town.is_silent[0] = true;
    town.run(12_000);
    assert!(town.nodes[3].me().is_master(), "the replica took over");
    assert!(town.nodes[3].open_slots().is_empty());
    assert!(!town.nodes[3].config_text().contains("tenureReleasedSlots"));
    assert!(matches!(town.nodes[3].poll_output(), Output::WaitUntil(_)));
}

#[test]
fn a_replica_that_is_told_again_whom_to_follow_tells_its_data_again() {
    let mut town = Town::new(1);
    let now = town.time();
    town.nodes[3].replicate(now, id(0), true).expect("it is a master");
    let mut told = 0;
    loop {
        match town.nodes[3].poll_output() {
            Output::Become(Role::ReplicaOf { id: master, .. }) if master == id(0) => told += 1,
            Output::WaitUntil(_) => break,
            _ => {}
        }
    }
    assert_eq!(told, 1);
}
