//! What a replica does and does not do by itself.

use std::time::Duration;

use store_resp::Reply;
use testkit::proxy::{Cut, Door, Proxy};

use super::{Ours, error, ok, primary, their_fact};
use crate::connection::Connection;

const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

#[test]
fn a_replica_takes_no_writes_unless_it_is_told_to() {
    let theirs = primary();
    let mut ours = Ours::following(theirs.port());
    assert_eq!(ours.words("SET a 1"), error(READ_ONLY));
    ours.words("MULTI");
    assert_eq!(ours.words("SET a 1"), error(READ_ONLY));
    assert_eq!(
        ours.words("EXEC"),
        error("EXECABORT Transaction discarded because of previous errors.")
    );
    let Reply::Error(text) = ours.ask(&["EVAL", "return redis.call('SET','a','1')", "0"]) else {
        panic!("a script wrote")
    };
    assert!(text.starts_with(READ_ONLY), "{text}");
    let Reply::Error(text) = ours.ask(&["EVAL", "#!lua\nreturn 1", "0"]) else {
        panic!("a script that may write ran")
    };
    assert_eq!(text, READ_ONLY);
    assert_eq!(ours.words("CONFIG SET replica-read-only no"), ok());
    assert_eq!(ours.words("SET own 1"), ok());
    // What it wrote itself does not move its offset.
    theirs.cli(&["SET", "a", "1"]);
    testkit::wait_until("the write", testkit::GENEROUS, || {
        ours.words("GET a") == Reply::Bulk(b"1".to_vec())
    });
    assert_eq!(ours.fact("slave_repl_offset"), their_fact(&theirs, "master_repl_offset"));
}

#[test]
fn writes_that_were_queued_before_the_role_changed_do_not_run() {
    let theirs = primary();
    let mut ours = Ours::start();
    let mut client = ours.another_connection();
    client.words("MULTI");
    client.words("SET a 1");
    ours.follow(theirs.port());
    let reply = client.words("EXEC");
    assert_eq!(reply, error(&format!("EXECABORT Transaction discarded because of: {READ_ONLY}")));
}

#[test]
fn a_key_that_ended_is_not_shown_and_stays_until_the_primary_removes_it() {
    let theirs = primary();
    theirs.cli(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let mut ours = Ours::following(theirs.port());
    theirs.cli(&["SET", "short", "1", "PX", "50"]);
    theirs.cli(&["SET", "long", "1"]);
    testkit::wait_until("the writes", testkit::GENEROUS, || {
        ours.words("DBSIZE") == Reply::Integer(2)
    });
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(ours.words("GET short"), Reply::Null);
    assert_eq!(ours.words("TTL short"), Reply::Integer(-2));
    assert_eq!(ours.words("DBSIZE"), Reply::Integer(2), "it is there, unseen");
    // The primary finds it ended when it is asked, and says so.
    assert_eq!(theirs.cli(&["EXISTS", "short"]), "0");
    testkit::wait_until("the removal", testkit::GENEROUS, || {
        ours.words("DBSIZE") == Reply::Integer(1)
    });
    ours.wait_until_equal(&theirs);
}

#[test]
fn a_replica_evicts_nothing_though_it_has_less_memory() {
    let theirs = primary();
    theirs.cli(&["DEBUG", "POPULATE", "5000", "key", "1000"]);
    let mut ours = Ours::start_with(|builder| {
        builder.setting("maxmemory", "1mb").setting("maxmemory-policy", "allkeys-lru")
    });
    ours.follow(theirs.port());
    ours.wait_for("master_link_status", "up");
    theirs.cli(&["SET", "a", "1"]);
    ours.wait_until_equal(&theirs);
    assert_eq!(ours.words("GET a"), Reply::Bulk(b"1".to_vec()));
    assert_eq!(ours.words("DBSIZE"), Reply::Integer(5001));
    assert_eq!(ours.fact("evicted_keys"), "0");
}

#[test]
fn old_data_is_served_without_a_link_only_if_it_may_be() {
    let theirs = primary();
    theirs.cli(&["SET", "a", "1"]);
    let proxy = Proxy::in_front_of(&theirs);
    let mut ours = Ours::following(proxy.port());
    ours.wait_until_equal(&theirs);
    proxy.set_door(Door::Refuse);
    proxy.cut(Cut::Close);
    ours.wait_for("master_link_status", "down");
    assert_eq!(ours.words("GET a"), Reply::Bulk(b"1".to_vec()));
    assert_eq!(ours.words("CONFIG SET replica-serve-stale-data no"), ok());
    let stale = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    assert_eq!(ours.words("GET a"), error(stale));
    assert_eq!(ours.words("PING"), error(stale), "as on Redis");
    assert!(matches!(ours.words("INFO replication"), Reply::Bulk(_)));
    proxy.set_door(Door::Open);
    ours.wait_for("master_link_status", "up");
    assert_eq!(ours.words("GET a"), Reply::Bulk(b"1".to_vec()));
}

#[test]
fn who_waits_is_sent_away_when_its_server_becomes_a_replica() {
    let theirs = primary();
    let mut ours = Ours::start();
    let mut client = ours.another_connection();
    client.send(&["BLPOP", "l", "0"]);
    ours.wait_for("blocked_clients", "1");
    ours.follow(theirs.port());
    assert_eq!(
        client.receive(),
        Some(error(
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> \
             replica?)"
        ))
    );
    assert_eq!(client.receive(), None, "it is closed");
}

#[test]
fn role_and_info_tell_of_the_link() {
    let theirs = primary();
    let port = theirs.port();
    let mut ours = Ours::following(port);
    ours.wait_until_equal(&theirs);
    let Reply::Array(role) = ours.words("ROLE") else { panic!("no role") };
    assert_eq!(role[0], Reply::Bulk(b"slave".to_vec()));
    assert_eq!(role[1], Reply::Bulk(b"127.0.0.1".to_vec()));
    assert_eq!(role[2], Reply::Integer(port.into()));
    assert_eq!(role[3], Reply::Bulk(b"connected".to_vec()));
    let Reply::Bulk(list) = ours.words("CLIENT LIST TYPE master") else { panic!("no list") };
    let list = String::from_utf8(list).unwrap();
    assert!(
        list.contains(&format!("addr=127.0.0.1:{port} ")) && list.contains("flags=M "),
        "{list}"
    );
    assert_ne!(ours.fact("total_net_repl_input_bytes"), "0");
    assert_eq!(ours.words("CLIENT KILL TYPE master"), Reply::Integer(1));
    ours.wait_for("master_link_status", "up");
    ours.wait_until_equal(&theirs);
    assert_eq!(their_fact(&theirs, "sync_partial_ok"), "1", "it came back at once");
    assert_eq!(ours.fact("slave_read_only"), "1");
    assert_eq!(ours.fact("slave_priority"), "100");
    assert_eq!(ours.fact("master_host"), "127.0.0.1");
    let again = format!("REPLICAOF 127.0.0.1 {port}");
    assert_eq!(
        ours.words(&again),
        Reply::Simple("OK Already connected to specified master".into())
    );
    assert_eq!(ours.words("REPLICAOF 127.0.0.1 70000"), error("ERR Invalid master port"));
}

#[test]
fn a_replica_that_is_promoted_takes_writes_and_is_another_incarnation() {
    let theirs = primary();
    theirs.cli(&["SET", "a", "1"]);
    let mut ours = Ours::start_with(|builder| builder.vouch_for_history());
    let born = ours.fact("tenure_incarnation");
    assert_eq!(ours.fact("tenure_history"), "complete");
    ours.follow(theirs.port());
    ours.wait_for("master_link_status", "up");
    let synced = ours.fact("tenure_incarnation");
    assert_ne!(synced, born, "the data of another server");
    assert_eq!(ours.fact("tenure_history"), "unknown");
    let id = ours.fact("master_replid");
    assert_eq!(ours.words("REPLICAOF NO ONE"), ok());
    assert_eq!(ours.words("SET b 2"), ok());
    assert_eq!(ours.fact("role"), "master");
    assert_ne!(ours.fact("tenure_incarnation"), synced);
    assert_eq!(ours.fact("master_replid2"), id, "who followed the same may go on here");
    assert_eq!(ours.words("GET a"), Reply::Bulk(b"1".to_vec()));
}

#[test]
fn a_transaction_as_sentinel_sends_it_changes_the_role_and_the_file() {
    let theirs = primary();
    let folder = testkit::TempFolder::create();
    let file = folder.write("ours.conf", "port 0\n");
    let mut ours = Ours::start_with(|builder| builder.config_file(&file));
    let port = theirs.port();
    for line in [
        "MULTI".to_owned(),
        format!("SLAVEOF 127.0.0.1 {port}"),
        "CONFIG REWRITE".to_owned(),
        "CLIENT KILL TYPE pubsub".to_owned(),
    ] {
        ours.words(&line);
    }
    let Reply::Array(replies) = ours.words("EXEC") else { panic!("no replies") };
    assert_eq!(replies[..2], [ok(), ok()]);
    ours.wait_for("master_link_status", "up");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(&format!("replicaof 127.0.0.1 {port}\n")), "{text}");
    assert_eq!(ours.words("REPLICAOF NO ONE"), ok());
    assert_eq!(ours.words("CONFIG REWRITE"), ok());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("replicaof"), "{text}");
}

#[test]
fn nothing_is_written_before_the_role_that_allows_it_is_there() {
    let theirs = primary();
    let mut ours = Ours::start_with(|builder| builder.setting("repl-diskless-sync-delay", "0"));
    ours.follow(theirs.port());
    ours.wait_for("master_link_status", "up");
    let mut below = Ours::following(ours.server.port().unwrap());
    // All of it comes at once, so that nothing is done in between that a turn does at its end.
    let lines = ["MULTI", "REPLICAOF NO ONE", "CONFIG SET maxclients 999", "EXEC", "SET early 1"];
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        store_resp::write_request(&mut bytes, words.into_iter());
    }
    let mut client = ours.another_connection();
    client.send_raw(&bytes);
    let replies: Vec<_> = lines.iter().map(|_| client.receive().expect("a reply")).collect();
    assert_eq!(ours.words("SET later 1"), ok());
    testkit::wait_until("the write", testkit::GENEROUS, || {
        below.words("EXISTS later") == Reply::Integer(1)
    });
    assert_eq!(below.words("EXISTS early"), ours.words("EXISTS early"), "{replies:?}");
}

#[test]
fn a_primary_that_is_none_is_told_in_the_log_and_data_stays() {
    let mut ours = Ours::start();
    ours.words("SET a 1");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            use std::io::Write;
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    ours.follow(port);
    testkit::wait_until("a line about it", testkit::GENEROUS, || {
        ours.has_logged("MASTER aborted replication") || ours.has_logged("not what a master says")
    });
    assert_eq!(ours.words("GET a"), Reply::Bulk(b"1".to_vec()));
    let mut other = Connection::tcp(ours.server.port().unwrap());
    assert_eq!(other.words("GET a"), Reply::Bulk(b"1".to_vec()));
}

#[test]
fn what_a_writable_replica_wrote_ends_there_and_reaches_nobody_below() {
    let theirs = primary();
    theirs.cli(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let mut ours = Ours::start_with(|builder| {
        builder
            .setting("replica-read-only", "no")
            .setting("repl-diskless-sync-delay", "0")
            .setting("repl-disable-tcp-nodelay", "yes")
    });
    ours.follow(theirs.port());
    ours.wait_for("master_link_status", "up");
    let mut below = Ours::following(ours.server.port().unwrap());
    theirs.cli(&["SET", "short", "1", "PX", "60"]);
    testkit::wait_until("the write", testkit::GENEROUS, || {
        ours.words("DBSIZE") == Reply::Integer(1)
    });
    assert_eq!(ours.words("SET later 1"), ok());
    assert_eq!(ours.words("EXPIRE later 1000"), Reply::Integer(1));
    assert_eq!(ours.fact("slave_expires_tracked_keys"), "1");
    assert_eq!(ours.words("SET own 1 PX 50"), ok());
    ours.wait_for("expired_keys", "1");
    ours.wait_for("slave_expires_tracked_keys", "1");
    assert_eq!(ours.words("PERSIST later"), Reply::Integer(1));
    ours.wait_for("slave_expires_tracked_keys", "0");
    // What ends by the word of the primary waits for it.
    assert_eq!(ours.words("GET short"), Reply::Null);
    assert_eq!(ours.words("DBSIZE"), Reply::Integer(2), "short is there, unseen");
    theirs.cli(&["SET", "a", "1"]);
    below.wait_for("slave_repl_offset", &their_fact(&theirs, "master_repl_offset"));
    assert_eq!(below.words("EXISTS own later a"), Reply::Integer(1));
    assert_eq!(ours.words("REPLICAOF NO ONE"), ok());
    ours.wait_for("expired_keys", "2");
}
