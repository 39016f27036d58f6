//! WAIT and min-replicas: what is promised about replicas is true of them.

use std::time::Duration;

use testkit::{GENEROUS, wait_until};

use super::support::{
    LogLines, connect, follow, follower, info, primary, text, wait_for_link, wait_for_online,
};
use crate::connection::Connection;
use store_server::StopSignal;

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

/// Who notes up to where a replica must have come reads write and offset in one go.
#[test]
fn the_offset_that_is_told_behind_a_write_has_the_write() {
    let server = primary().start().unwrap();
    let mut ours = connect(&server);
    let replica = follower(server.port().unwrap(), &[]);
    wait_for_link(&mut Connection::tcp(replica.port()));
    ours.words("CONFIG SET repl-ping-replica-period 1000");
    wait_for_online(&mut ours, 1);
    let offset = |reply: &str| {
        let digits = reply.chars().skip_while(|letter| !letter.is_ascii_digit());
        let digits: String = digits.take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap()
    };
    for question in ["ROLE", "INFO replication"] {
        // As one piece, so that they are read together.
        let write = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1\r\nx\r\n";
        ours.send_raw(format!("{write}{question}\r\n").as_bytes());
        assert_eq!(text(&ours.receive().unwrap()), "OK");
        let told = text(&ours.receive().unwrap());
        let told = told.split("master_repl_offset").last().unwrap();
        assert_eq!(offset(told), offset(&text(&ours.words("ROLE"))), "{question}");
    }
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

#[test]
fn shutdown_waits_for_replicas_and_can_be_aborted() {
    let log = LogLines::default();
    let server = log.of(primary().setting("shutdown-timeout", "25")).start().unwrap();
    let mut ours = connect(&server);
    let mut replica = follower(server.port().unwrap(), &[]);
    let mut theirs = Connection::tcp(replica.port());
    wait_for_link(&mut theirs);
    ours.words("SET key 1");
    assert_eq!(text(&ours.words("WAIT 1 30000")), "1");
    replica.pause();
    ours.words("SET key 2");
    let (mut ender, mut writer) = (connect(&server), connect(&server));
    ender.send(&["SHUTDOWN"]);
    wait_until("it to wait", GENEROUS, || log.count("Waiting for replicas before") == 1);
    writer.send(&["SET", "held", "1"]);
    assert_eq!(text(&ours.words("GET key")), "2");
    assert_eq!(text(&ours.words("SHUTDOWN ABORT")), "OK");
    assert_eq!(text(&ender.receive().unwrap()), "-ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(text(&writer.receive().unwrap()), "OK");
    assert_eq!(text(&ours.words("SHUTDOWN ABORT")), "-ERR No shutdown in progress.");

    ender.send(&["SHUTDOWN"]);
    wait_until("it to wait again", GENEROUS, || log.count("Waiting for replicas before") == 2);
    replica.resume();
    assert!(ender.receive().is_none(), "the server ended");
    assert_eq!(log.count("1 of 1 replicas are in sync when shutting down."), 1);
    assert_eq!(text(&theirs.words("GET held")), "1");
    server.wait().unwrap();
}

#[test]
fn an_end_does_not_wait_longer_than_it_may() {
    let log = LogLines::default();
    let server = log.of(primary().setting("shutdown-timeout", "1")).start().unwrap();
    let mut ours = connect(&server);
    let mut replica = follower(server.port().unwrap(), &[]);
    wait_for_link(&mut Connection::tcp(replica.port()));
    ours.words("SET key 1");
    assert_eq!(text(&ours.words("WAIT 1 30000")), "1");
    replica.pause();
    ours.words("SET key 2");
    server.stopper().stop_on(StopSignal::Terminate);
    server.wait().unwrap();
    assert_eq!(log.count("Waiting for replicas before shutting down."), 1);
    assert_eq!(log.count("Lagging replica 127.0.0.1:"), 1);
    assert_eq!(log.count("0 of 1 replicas are in sync when shutting down."), 1);
    replica.resume();
}

/// CLIENT PAUSE holds clients back, and not what replicas confirm.
#[test]
fn a_pause_of_all_clients_does_not_cut_replicas_off() {
    let server = primary().setting("repl-timeout", "2").start().unwrap();
    let mut ours = connect(&server);
    let replica = follower(server.port().unwrap(), &[]);
    wait_for_link(&mut Connection::tcp(replica.port()));
    ours.words("SET key 1");
    assert_eq!(text(&ours.words("WAIT 1 30000")), "1");
    ours.words("CLIENT PAUSE 4000 ALL");
    // Answered when the pause is over.
    assert!(info(&mut ours, "replication", "slave0").contains("state=online"));
    assert_eq!(info(&mut ours, "stats", "sync_full"), "1");
    assert_eq!(info(&mut ours, "stats", "sync_partial_ok"), "0");
}

#[test]
fn wait_confirms_no_write_that_went_with_the_data_of_before() {
    let (first, second) = (primary().start().unwrap(), primary().start().unwrap());
    let (below, last) = (primary().start().unwrap(), primary().start().unwrap());
    let mut client = connect(&first);
    follow(&mut connect(&below), first.port().unwrap());
    wait_for_online(&mut client, 1);
    assert_eq!(text(&client.words("SET lost 1")), "OK");
    // A primary that is far ahead, in a history of its own.
    let mut other = connect(&second);
    follow(&mut connect(&last), second.port().unwrap());
    wait_for_online(&mut other, 1);
    other.ask(&["SET", "large", &"x".repeat(100_000)]);
    let mut operator = connect(&first);
    follow(&mut operator, second.port().unwrap());
    wait_for_link(&mut operator);
    operator.words("REPLICAOF NO ONE");
    let mut replica = connect(&below);
    wait_for_link(&mut replica);
    wait_for_online(&mut operator, 1);
    assert_eq!(text(&client.words("EXISTS lost")), "0");
    assert_eq!(text(&client.words("WAIT 1 100")), "0", "its write is nowhere");
    assert_eq!(text(&client.words("SET found 1")), "OK");
    assert_eq!(text(&client.words("WAIT 1 30000")), "1");
}
