//! Chains: ours follows, and is followed.

use store_resp::Reply;
use testkit::RedisServer;
use testkit::proxy::{Cut, Proxy};

use super::{Ours, fact, ok, primary, their_fact};
use crate::connection::Connection;

/// A real server that follows what listens at `port`.
fn real_replica(port: u16) -> RedisServer {
    let theirs = primary();
    theirs.cli(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
    testkit::wait_until("the link of a real replica", testkit::GENEROUS, || {
        their_fact(&theirs, "master_link_status") == "up"
    });
    theirs
}

fn quick() -> Ours {
    Ours::start_with(|builder| builder.setting("repl-diskless-sync-delay", "0"))
}

fn wait_until_theirs_is_equal(top: &RedisServer, theirs: &RedisServer) {
    testkit::wait_until("the offset at the end of the chain", testkit::GENEROUS, || {
        their_fact(theirs, "slave_repl_offset") == their_fact(top, "master_repl_offset")
    });
    testkit::wait_until("the data at the end of the chain", testkit::GENEROUS, || {
        theirs.cli(&["DEBUG", "DIGEST"]) == top.cli(&["DEBUG", "DIGEST"])
    });
}

#[test]
fn redis_ours_redis_ours_hold_the_same_at_the_same_offset() {
    let top = primary();
    top.cli(&["SET", "before", "1"]);
    let proxy = Proxy::in_front_of(&top);
    let mut second = quick();
    second.follow(proxy.port());
    second.wait_for("master_link_status", "up");
    let third = real_replica(second.server.port().unwrap());
    let mut fourth = Ours::following(third.port());
    let mut client = Connection::tcp(top.port());
    for round in 0..20 {
        for line in [
            &format!("SELECT {}", round % 4),
            &format!("SET key{round} {}", "v".repeat(round * 10)),
            "MULTI",
            "INCR counter",
            "SADD drawn 1 2 3 4 5 6",
            "SPOP drawn 2",
            "EXEC",
            "SET short 1 PX 10",
        ] {
            client.words(line);
        }
        if round == 10 {
            proxy.cut(Cut::Reset);
        }
    }
    second.wait_until_equal(&top);
    wait_until_theirs_is_equal(&top, &third);
    fourth.wait_until_equal(&top);
    assert_eq!(fourth.fact("master_replid"), their_fact(&top, "master_replid"));
    assert_eq!(their_fact(&top, "sync_full"), "1");
    assert_eq!(second.fact("sync_full"), "1", "a cut above costs those below nothing");
    let Reply::Array(role) = second.words("ROLE") else { panic!("no role") };
    assert_eq!(role[0], Reply::Bulk(b"slave".to_vec()));
    assert_eq!(second.fact("connected_slaves"), "1");
}

#[test]
fn after_a_promotion_in_the_middle_the_others_go_on_partially() {
    let top = primary();
    top.cli(&["SET", "before", "1"]);
    let mut middle = quick();
    middle.follow(top.port());
    middle.wait_for("master_link_status", "up");
    let mut end = Ours::following(middle.server.port().unwrap());
    middle.wait_until_equal(&top);
    let (id, incarnation) = (middle.fact("master_replid"), end.fact("tenure_incarnation"));

    assert_eq!(middle.words("REPLICAOF NO ONE"), ok());
    assert_eq!(middle.words("SET after 1"), ok());
    testkit::wait_until("the write of the new primary", testkit::GENEROUS, || {
        end.words("GET after") == Reply::Bulk(b"1".to_vec())
    });
    assert_eq!(middle.fact("master_replid2"), id);
    assert_eq!(end.fact("master_replid"), middle.fact("master_replid"));
    assert_eq!(middle.fact("sync_full"), "1", "the one below went on where it was");
    assert_ne!(end.fact("tenure_incarnation"), incarnation, "another history");

    // The old primary, which wrote nothing since, is taken back without a payload.
    top.cli(&["REPLICAOF", "127.0.0.1", &middle.server.port().unwrap().to_string()]);
    testkit::wait_until("the old primary follows", testkit::GENEROUS, || {
        their_fact(&top, "master_link_status") == "up"
    });
    assert_eq!(middle.fact("sync_full"), "1");
    let digest = middle.words("DEBUG DIGEST");
    testkit::wait_until("the same data everywhere", testkit::GENEROUS, || {
        Reply::Simple(top.cli(&["DEBUG", "DIGEST"])) == digest
            && end.words("DEBUG DIGEST") == digest
    });
    let offset = middle.fact("master_repl_offset");
    testkit::wait_until("the same offset", testkit::GENEROUS, || {
        fact(&mut end.connection, "slave_repl_offset") >= Some(offset.clone())
    });
}
