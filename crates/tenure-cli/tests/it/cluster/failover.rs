//! A replica takes the place of its master: because that died, or because an operator wants it.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::{ClusterGroup, GENEROUS, ServerProgram, wait_until};

use super::mixed;

#[test]
fn a_replica_of_either_kind_replaces_a_master_that_is_killed() {
    let mut group = ClusterGroup::start_mixed(&mixed());
    // The first master is ours and its replica real; the second the other way round.
    for key in ["{3}", "{1}"] {
        let slot = group.slot_of(key);
        let master = group.owner_of(slot).unwrap();
        assert_eq!(group.server(master).cli(&["SET", key, "kept"]), "OK");
        assert!(group.server(master).has_replicas_in_step(1));
        group.wait_until_heard();
        group.kill(master);
        let new = group.wait_for_another_owner(slot, master);
        assert_eq!(new, master + ClusterGroup::MASTERS);
        wait_until("the slot to be served", GENEROUS, || {
            group.server(new).cli(&["GET", key]) == "kept"
        });
        assert_eq!(group.server(new).cli(&["SET", key, "kept"]), "OK");
        group.restart(master);
        group.wait_until_whole();
        assert_eq!(group.replicas_of(new), [master]);
    }
}

#[test]
fn a_master_of_ours_that_stands_still_is_replaced_by_one_of_ours_and_follows_it() {
    let mut group = ClusterGroup::start_mixed(&vec![ServerProgram::own(); 6]);
    let slot = group.slot_of("key");
    let master = group.owner_of(slot).unwrap();
    group.wait_until_heard();
    let mut client = TcpStream::connect(("127.0.0.1", group.server(master).port())).unwrap();
    client.set_read_timeout(Some(GENEROUS)).unwrap();
    group.pause(master);
    let new = group.wait_for_another_owner(slot, master);
    // It waits in the socket, and is read before anything that the other nodes say.
    client.write_all(b"SET key late\r\n").unwrap();
    group.resume(master);
    let mut first = [0];
    client.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"-", "a write that nobody keeps is refused");
    group.wait_until_whole();
    assert_eq!(group.replicas_of(new), [master]);
    // It takes no write that nobody would keep.
    let said = group.server(master).cli(&["SET", "key", "late"]);
    assert!(said.starts_with(&format!("MOVED {slot}")), "{said}");
}

#[test]
fn an_operator_moves_the_part_of_the_master_between_the_kinds() {
    let group = ClusterGroup::start_mixed(&mixed()).steady();
    // One shard has a master of ours and a real replica, the other one the reverse.
    for (key, is_forced) in [("{3}", true), ("{1}", false)] {
        let slot = group.slot_of(key);
        let first = group.owner_of(slot).unwrap();
        let read = |master: usize| group.server(master).cli(&["GET", key]);
        assert_eq!(group.server(first).cli(&["SET", key, "kept"]), "OK");
        let second = group.fail_over(first);
        assert_eq!(read(second), "kept", "nothing is lost by an orderly failover");
        let said = group.server(second).cli(&["CLUSTER", "FAILOVER"]);
        assert!(said.contains("You should send CLUSTER FAILOVER to a replica"), "{said}");

        group.wait_until_whole();
        if is_forced {
            // By votes, without asking the master.
            assert_eq!(group.server(first).cli(&["CLUSTER", "FAILOVER", "FORCE"]), "OK");
            assert_eq!(group.wait_for_another_owner(slot, second), first);
        } else {
            assert_eq!(group.take_over(second), first);
        }
        assert_eq!(read(first), "kept");
    }
}
