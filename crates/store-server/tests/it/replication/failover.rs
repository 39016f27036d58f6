//! FAILOVER: a primary hands its role to a replica, between ours and real servers.

use store_server::Server;
use testkit::{GENEROUS, RedisServer, wait_until};

use super::support::{
    LogLines, assert_equal, connect, follow, follower, info, primary, text, wait_for_link,
    wait_for_online,
};
use crate::connection::Connection;

/// One of ours that follows a port.
fn our_follower(port: u16) -> Server {
    let server = primary().start().unwrap();
    let mut connection = connect(&server);
    follow(&mut connection, port);
    wait_for_link(&mut connection);
    server
}

/// Hands over while a client writes: whoever is refused finds its write nowhere, and whoever was
/// answered finds it on both.
#[track_caller]
fn hand_over(from: u16, to: u16) {
    let (mut old, mut new) = (Connection::tcp(from), Connection::tcp(to));
    wait_for_online(&mut old, 1);
    new.words("CONFIG RESETSTAT");
    let mut writer = Connection::tcp(from);
    writer.words("SET before 1");
    assert_eq!(text(&old.words(&format!("FAILOVER TO 127.0.0.1 {to}"))), "OK");
    let refusal = text(&writer.words("SET during 1"));
    assert!(refusal.contains("READONLY"), "it was held, then refused: {refusal}");
    wait_until("the roles to be changed", GENEROUS, || {
        info(&mut new, "replication", "role") == "master"
            && info(&mut old, "replication", "master_link_status") == "up"
            && info(&mut old, "replication", "master_failover_state") == "no-failover"
    });
    assert_eq!(info(&mut old, "replication", "master_port"), to.to_string());
    assert_eq!(text(&new.words("SET after 1")), "OK");
    assert_equal(&mut new, &mut old);
    assert_eq!(text(&new.words("EXISTS before during after")), "2");
    assert_eq!(info(&mut new, "stats", "sync_full"), "0", "nothing was copied");
    assert_eq!(info(&mut new, "stats", "sync_partial_ok"), "1");
}

#[test]
fn ours_hands_over_to_redis_and_redis_back_to_ours() {
    let lines = LogLines::default();
    let server = lines.of(primary()).start().unwrap();
    let replica = follower(server.port().unwrap(), &[]);
    wait_for_link(&mut Connection::tcp(replica.port()));
    hand_over(server.port().unwrap(), replica.port());
    assert_eq!(lines.count(&format!("FAILOVER requested to 127.0.0.1:{}.", replica.port())), 1);
    assert_eq!(lines.count("is synced, failing over."), 1);

    hand_over(replica.port(), server.port().unwrap());
    assert_eq!(lines.count("Failover request received for replid "), 1);
    assert_eq!(lines.count("MASTER MODE enabled (failover request from 'id="), 1);
}

#[test]
fn ours_hands_over_to_ours_whichever_replica_has_everything() {
    let server = primary().start().unwrap();
    let replica = our_follower(server.port().unwrap());
    let (mut old, mut new) = (connect(&server), connect(&replica));
    wait_for_online(&mut old, 1);
    // All is known to have arrived, so that it takes over within the request.
    old.words("CONFIG SET repl-ping-replica-period 1000");
    old.words("SET a 1");
    wait_until("the write to be confirmed", GENEROUS, || {
        let offset = info(&mut old, "replication", "master_repl_offset");
        info(&mut old, "replication", "slave0").contains(&format!("offset={offset},"))
    });
    assert_eq!(text(&old.words("FAILOVER TIMEOUT 30000")), "OK");
    wait_until("the roles to be changed", GENEROUS, || {
        info(&mut new, "replication", "role") == "master"
            && info(&mut old, "replication", "master_link_status") == "up"
    });
    new.words("SET b 1");
    assert_equal(&mut new, &mut old);
    hand_over(replica.port().unwrap(), server.port().unwrap());
}

/// A primary, and a replica that is not scheduled any more.
fn with_stopped_replica() -> (Server, LogLines, RedisServer) {
    let lines = LogLines::default();
    let server = lines.of(primary()).start().unwrap();
    let mut replica = follower(server.port().unwrap(), &[]);
    wait_for_link(&mut Connection::tcp(replica.port()));
    wait_for_online(&mut connect(&server), 1);
    replica.pause();
    connect(&server).words("SET unseen 1");
    (server, lines, replica)
}

#[test]
fn a_failover_that_waits_can_be_aborted_or_runs_out_of_time() {
    let (server, lines, mut replica) = with_stopped_replica();
    let mut ours = connect(&server);
    let mut writer = connect(&server);
    assert_eq!(text(&ours.words("FAILOVER")), "OK");
    assert_eq!(info(&mut ours, "replication", "master_failover_state"), "waiting-for-sync");
    let refused = text(&ours.words("FAILOVER"));
    assert!(refused.contains("ERR FAILOVER already in progress."), "{refused}");
    let refused = text(&ours.words("REPLICAOF NO ONE"));
    assert!(refused.contains("ERR REPLICAOF not allowed while failing over."), "{refused}");
    writer.send(&["SET", "held", "1"]);
    assert_eq!(text(&ours.words("GET unseen")), "1", "reads are served");
    assert_eq!(text(&ours.words("FAILOVER ABORT")), "OK");
    assert_eq!(text(&writer.receive().unwrap()), "OK");
    assert_eq!(lines.count("FAILOVER to any replica aborted: Failover manually aborted"), 1);
    let refused = text(&ours.words("FAILOVER ABORT"));
    assert!(refused.contains("ERR No failover in progress."), "{refused}");

    assert_eq!(text(&ours.words("FAILOVER TIMEOUT 50")), "OK");
    assert_eq!(text(&writer.words("SET held 2")), "OK", "once the time is up");
    assert_eq!(lines.count("aborted: Replica never caught up before timeout"), 1);
    assert_eq!(info(&mut ours, "replication", "master_failover_state"), "no-failover");
    replica.resume();
    assert_eq!(text(&writer.words("WAIT 1 30000")), "1");
}

#[test]
fn a_forced_failover_goes_on_when_the_time_is_up_and_can_still_be_aborted() {
    let (server, lines, mut replica) = with_stopped_replica();
    let mut ours = connect(&server);
    let to = format!("127.0.0.1 {}", replica.port());
    assert_eq!(text(&ours.words(&format!("FAILOVER TO {to} FORCE TIMEOUT 50"))), "OK");
    wait_until("it to be forced", GENEROUS, || {
        info(&mut ours, "replication", "master_failover_state") == "failover-in-progress"
    });
    assert_eq!(lines.count("time out exceeded, failing over."), 1);
    assert_eq!(info(&mut ours, "replication", "role"), "slave");
    assert_eq!(text(&ours.words("FAILOVER ABORT")), "OK");
    assert_eq!(info(&mut ours, "replication", "role"), "master");
    assert_eq!(text(&ours.words("SET held 1")), "OK");

    let again = format!("FAILOVER TO {to} FORCE TIMEOUT 50");
    replica.resume();
    wait_for_online(&mut ours, 1);
    replica.pause();
    ours.words("SET lost 1");
    assert_eq!(text(&ours.words(&again)), "OK");
    wait_until("it to be forced", GENEROUS, || {
        info(&mut ours, "replication", "master_failover_state") == "failover-in-progress"
    });
    replica.resume();
    let mut new = Connection::tcp(replica.port());
    wait_until("the replica to take over", GENEROUS, || {
        info(&mut new, "replication", "role") == "master"
            && info(&mut ours, "replication", "master_link_status") == "up"
    });
    assert_equal(&mut new, &mut ours);
}

/// A target that says no: clients write here again, and the log says why.
#[test]
fn a_target_that_refuses_leaves_the_old_primary_in_charge() {
    let lines = LogLines::default();
    let server = lines.of(primary()).start().unwrap();
    let mut ours = connect(&server);
    let replica = follower(server.port().unwrap(), &["--rename-command", "PSYNC", "none"]);
    wait_for_link(&mut Connection::tcp(replica.port()));
    wait_for_online(&mut ours, 1);
    ours.words("SET a 1");
    assert_eq!(text(&ours.words(&format!("FAILOVER TO 127.0.0.1 {}", replica.port()))), "OK");
    wait_until("the refusal", GENEROUS, || {
        lines.count("aborted: Failover target rejected psync request") == 1
    });
    assert_eq!(text(&ours.words("SET b 1")), "OK");
    wait_for_link(&mut Connection::tcp(replica.port()));
    assert_equal(&mut ours, &mut Connection::tcp(replica.port()));
}

#[test]
fn a_failover_inside_a_transaction_is_answered_there_and_begins_behind_it() {
    let server = primary().start().unwrap();
    let (mut ours, theirs) = (connect(&server), RedisServer::start());
    let mut theirs = Connection::tcp(theirs.port());
    let refused = ["MULTI", "FAILOVER", "FAILOVER TO x 1 FORCE", "FAILOVER ABORT", "EXEC"];
    for line in refused {
        assert_eq!(ours.words(line), theirs.words(line), "{line}");
    }
    let replica = our_follower(server.port().unwrap());
    let mut new = connect(&replica);
    wait_for_online(&mut ours, 1);
    let to = format!("FAILOVER TO 127.0.0.1 {}", replica.port().unwrap());
    for line in ["MULTI", "FAILOVER TO x 1", "SET last 1", &to] {
        ours.words(line);
    }
    let told = format!("{:?}", ours.words("EXEC"));
    assert!(told.contains("target HOST and PORT is not a replica"), "{told}");
    assert_eq!(told.matches("+OK").count(), 2, "{told}");
    wait_until("the new primary", GENEROUS, || info(&mut new, "replication", "role") == "master");
    assert_eq!(text(&new.words("GET last")), "1");
    wait_for_link(&mut ours);
}

#[test]
fn a_session_that_changed_the_role_in_a_transaction_may_wait_for_something_else() {
    let server = primary().start().unwrap();
    let replica = our_follower(server.port().unwrap());
    let (mut client, mut writer) = (connect(&replica), connect(&replica));
    client.send_raw(b"MULTI\r\nREPLICAOF NO ONE\r\nEXEC\r\nXREAD BLOCK 0 STREAMS s $\r\n");
    for _ in 0..3 {
        client.receive().unwrap();
    }
    wait_until("the reader", GENEROUS, || info(&mut writer, "clients", "blocked_clients") == "1");
    writer.words("XADD s 1-1 f v");
    let read = format!("{:?}", client.receive());
    assert!(read.contains("1-1"), "{read}");
}
