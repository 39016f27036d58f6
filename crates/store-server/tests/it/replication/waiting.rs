//! WAIT and min-replicas: what is promised about replicas is true of them.

use std::time::Duration;

use testkit::{GENEROUS, wait_until};

use super::support::{connect, follower, info, primary, text, wait_for_link};
use crate::connection::Connection;

#[test]
fn wait_counts_replicas_that_have_the_write_and_no_others() {
    let server = primary().start().unwrap();
    let mut ours = connect(&server);
    assert_eq!(text(&ours.words("WAIT 1 20")), "0");
    let mut replicas = [(); 2].map(|()| follower(server.port().unwrap(), &[]));
    for replica in &replicas {
        wait_for_link(&mut Connection::tcp(replica.port()));
    }
    ours.words("SET key 1");
    assert_eq!(text(&ours.words("WAIT 2 30000")), "2");
    // Write and question in one read: the offset is that of the write.
    ours.send_raw(b"SET key 2\r\nWAIT 2 30000\r\nGET key\r\n");
    assert_eq!(text(&ours.receive().unwrap()), "OK");
    assert_eq!(text(&ours.receive().unwrap()), "2");
    assert_eq!(text(&ours.receive().unwrap()), "2");

    replicas[0].pause();
    ours.words("SET key 3");
    assert_eq!(text(&ours.words("WAIT 2 300")), "1");
    ours.send_raw(b"SET key 4\r\nMULTI\r\nWAIT 1 0\r\nEXEC\r\n");
    let replies: Vec<String> = (0..4).map(|_| text(&ours.receive().unwrap())).collect();
    assert_eq!(replies[3], "[:0]", "nobody can have what was not sent");
    replicas[1].pause();
    ours.words("SET key 5");
    assert_eq!(text(&ours.words("WAIT 1 100")), "0");
    replicas.iter_mut().for_each(testkit::RedisServer::resume);
    assert_eq!(text(&ours.words("WAIT 2 30000")), "2");
}

/// A pop that had to wait is a write of the session that waited.
#[test]
fn wait_after_a_command_that_blocked_is_about_its_write() {
    let server = primary().start().unwrap();
    let (mut ours, mut popper) = (connect(&server), connect(&server));
    let mut replica = follower(server.port().unwrap(), &[]);
    wait_for_link(&mut Connection::tcp(replica.port()));
    popper.words("SET own 1");
    assert_eq!(text(&popper.words("WAIT 1 30000")), "1");
    popper.send(&["BLPOP", "list", "0"]);
    wait_until("it to wait", GENEROUS, || info(&mut ours, "clients", "blocked_clients") == "1");
    replica.pause();
    ours.words("RPUSH list a b");
    popper.receive().unwrap();
    assert_eq!(text(&popper.words("WAIT 1 200")), "0");
    replica.resume();
    assert_eq!(text(&popper.words("WAIT 1 30000")), "1");
}

#[test]
fn a_wait_can_be_ended_and_begun_again() {
    let server = primary().start().unwrap();
    let (mut ours, mut other) = (connect(&server), connect(&server));
    let id = text(&ours.words("CLIENT ID"));
    ours.words("SET key 1");
    ours.send(&["WAIT", "1", "0"]);
    wait_until("it to wait", GENEROUS, || info(&mut other, "clients", "blocked_clients") == "1");
    assert_eq!(text(&other.words(&format!("CLIENT UNBLOCK {id}"))), "1");
    assert_eq!(text(&ours.receive().unwrap()), "0");
    ours.send(&["WAIT", "1", "0"]);
    let replica = follower(server.port().unwrap(), &[]);
    assert_eq!(text(&ours.receive().unwrap()), "1");
    drop(replica);
}

#[test]
fn writes_are_refused_while_too_few_replicas_are_good() {
    let server = primary()
        .setting("min-replicas-to-write", "1")
        .setting("min-replicas-max-lag", "2")
        .start()
        .unwrap();
    let mut ours = connect(&server);
    let refused = "NOREPLICAS Not enough good replicas to write.";
    assert_eq!(text(&ours.words("SET key 1")), format!("-{refused}"));
    let mut replica = follower(server.port().unwrap(), &[]);
    wait_until("writes to be taken", GENEROUS, || text(&ours.words("SET key 1")) == "OK");
    assert_eq!(info(&mut ours, "replication", "min_slaves_good_slaves"), "1");
    replica.pause();
    wait_until("writes to be refused", GENEROUS, || text(&ours.words("SET key 2")) != "OK");
    replica.resume();
    wait_until("writes to be taken again", Duration::from_secs(30), || {
        text(&ours.words("SET key 3")) == "OK"
    });
}

#[test]
fn role_tells_who_follows_and_how_far() {
    let server = primary().start().unwrap();
    let mut ours = connect(&server);
    let replica = follower(server.port().unwrap(), &["--replica-announce-ip", "192.0.2.9"]);
    wait_for_link(&mut Connection::tcp(replica.port()));
    ours.words("SET key 1");
    assert_eq!(text(&ours.words("WAIT 1 30000")), "1");
    let role = format!("{:?}", ours.words("ROLE"));
    assert!(role.contains("192.0.2.9"), "{role}");
    assert!(info(&mut ours, "replication", "slave0").starts_with("ip=192.0.2.9,"));
}
