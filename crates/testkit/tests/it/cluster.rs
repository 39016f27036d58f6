//! A real cluster and what operators do to it.

use testkit::ClusterGroup;

#[test]
fn a_slot_moves_and_its_keys_with_it() {
    let group = ClusterGroup::start();
    let slot = group.slot_of("{tag}:key");
    assert_eq!(slot, group.slot_of("{tag}:other"));
    let from = group.owner_of(slot).unwrap();
    assert_eq!(group.server(from).cli(&["SET", "{tag}:key", "value"]), "OK");
    let to = (from + 1) % ClusterGroup::MASTERS;

    group.begin_migration(slot, to);
    let said = group.server(from).cli(&["GET", "{tag}:other"]);
    assert!(said.starts_with("ASK"), "{said}");
    assert_eq!(group.keys_in(slot), ["{tag}:key"]);
    group.migrate_key(slot, to, "{tag}:key");
    group.finish_migration(slot, to);

    assert_eq!(group.owner_of(slot), Some(to));
    assert_eq!(group.server(to).cli(&["GET", "{tag}:key"]), "value");
    assert!(group.server(from).cli(&["GET", "{tag}:key"]).starts_with("MOVED"));
    group.migrate(slot, from);
    assert_eq!(group.server(from).cli(&["GET", "{tag}:key"]), "value");
}

#[test]
fn a_replica_takes_the_place_of_its_master() {
    let mut group = ClusterGroup::start();
    let slot = group.slot_of("key");
    let first = group.owner_of(slot).unwrap();
    assert_eq!(group.replicas_of(first), [first + ClusterGroup::MASTERS]);

    let second = group.fail_over(first);
    assert_eq!(group.wait_for_another_owner(slot, first), second);
    group.wait_until_whole();

    group.kill(second);
    let third = group.wait_for_another_owner(slot, second);
    assert_eq!(third, first);
    group.restart(second);
    group.wait_until_whole();
    assert_eq!(group.replicas_of(third), [second]);
    assert_eq!(group.take_over(third), second);
}

#[test]
fn a_slot_can_be_left_without_an_owner() {
    let group =
        ClusterGroup::start_with(|node| node.args(["--cluster-require-full-coverage", "no"]));
    let slot = group.slot_of("key");
    let owner = group.owner_of(slot).unwrap();
    group.uncover(slot);
    assert_eq!(group.owner_of(slot), None);
    let said = group.server(owner).cli(&["GET", "key"]);
    assert!(said.starts_with("CLUSTERDOWN"), "{said}");
    let other = if slot == 0 { "other" } else { "key2" };
    let there = group.owner_of(group.slot_of(other)).unwrap();
    assert_eq!(group.server(there).cli(&["GET", other]), "");
}

#[test]
fn a_replica_keeps_no_file_of_what_it_was_sent() {
    let group = ClusterGroup::start();
    for place in 0..group.len() {
        let file = group.server(place).folder().join("dump.rdb");
        assert!(!file.exists(), "node {place} would not start empty: {}", file.display());
    }
}
