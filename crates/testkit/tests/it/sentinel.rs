//! Servers with sentinels, and whether they are in step.

use std::time::Duration;

use testkit::{SentinelGroup, wait_until};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_replica_that_has_missed_something_is_not_in_step() {
    let mut group = SentinelGroup::start(2);
    assert!(group.servers[0].has_replicas_in_step(2));

    group.servers[1].pause();
    assert_eq!(group.servers[0].cli(&["SET", "key", "value"]), "OK");
    assert!(group.servers[0].has_replicas_in_step(1));
    assert!(!group.servers[0].has_replicas_in_step(2));

    group.servers[1].resume();
    wait_until("both to be in step", SOON, || group.servers[0].has_replicas_in_step(2));
}

#[test]
fn patient_sentinels_replace_nobody_until_their_patience_ends() {
    let mut group = SentinelGroup::start(1);
    group.wait_until_heard();
    group.set_patient(true);
    group.servers[0].pause();
    std::thread::sleep(SentinelGroup::DOWN_AFTER * 2);
    assert_eq!(group.master(), Some(0));

    group.set_patient(false);
    assert_eq!(group.wait_for_another_master(0), 1);
}
