//! A primary of ours that restarts from its snapshot, and replicas that go on where they were.

use std::thread;
use std::time::Duration;

use store_server::Server;
use testkit::{GENEROUS, TempFolder, wait_until};

use super::support::{
    assert_equal, connect, follow, follower, info, primary, text, wait_for_link, wait_for_online,
};
use crate::connection::Connection;

/// A primary that keeps snapshots in `folder`, at `port` if it had one before.
fn start(folder: &TempFolder, port: Option<u16>) -> Server {
    let builder = primary()
        .setting("dir", folder.path().to_str().unwrap())
        .setting("save", "3600 1")
        .setting("repl-ping-replica-period", "1000");
    match port {
        Some(port) => builder.setting("port", &port.to_string()).listen_as_configured(),
        None => builder,
    }
    .start()
    .unwrap()
}

/// Ends it as SHUTDOWN does, and starts it again.
fn restart(server: Server, folder: &TempFolder, end: &[&str], pause: Duration) -> Server {
    let port = server.port();
    let mut connection = connect(&server);
    connection.send(end);
    server.wait().unwrap();
    thread::sleep(pause);
    start(folder, port)
}

fn syncs(connection: &mut Connection) -> (String, String) {
    (info(connection, "stats", "sync_full"), info(connection, "stats", "sync_partial_ok"))
}

#[test]
fn replicas_of_a_primary_that_restarts_from_its_snapshot_go_on_where_they_were() {
    let folder = TempFolder::create();
    let server = start(&folder, None);
    let port = server.port().unwrap();
    let theirs = follower(port, &[]);
    let below = primary().start().unwrap();
    let (mut client, mut replica) = (connect(&server), connect(&below));
    follow(&mut replica, port);
    wait_for_link(&mut replica);
    wait_for_online(&mut client, 2);
    client.words("SELECT 3");
    client.words("SET a 1");
    client.words("SET short 1 PX 700");
    client.words("HSET hash f v");
    let id = info(&mut client, "replication", "master_replid");
    // The key ends while nobody is there to say so.
    let server = restart(server, &folder, &["SHUTDOWN"], Duration::from_secs(1));
    let (mut client, mut redis) = (connect(&server), Connection::tcp(theirs.port()));
    wait_until("both to be back", GENEROUS, || {
        info(&mut client, "replication", "connected_slaves") == "2"
    });
    assert_eq!(syncs(&mut client), ("0".into(), "2".into()), "full and partial syncs");
    assert_eq!(info(&mut client, "replication", "master_replid2"), id);
    client.words("SELECT 3");
    client.words("INCR a");
    wait_until("the key to go", GENEROUS, || text(&client.words("DBSIZE")) == "2");
    for replica in [&mut redis, &mut replica] {
        assert_equal(&mut client, replica);
    }
}

#[test]
fn a_snapshot_among_writes_is_described_by_the_offset_of_its_data() {
    let folder = TempFolder::create();
    let server = start(&folder, None);
    let below = primary().start().unwrap();
    let (mut client, mut replica) = (connect(&server), connect(&below));
    follow(&mut replica, server.port().unwrap());
    wait_for_link(&mut replica);
    wait_for_online(&mut client, 1);
    let mut offset = info(&mut client, "replication", "master_repl_offset");
    // All of it in one turn, so that nothing was fed when the snapshot begins.
    client.send_raw(b"INCR before\r\nBGSAVE\r\nINCR behind\r\n");
    for _ in 0..3 {
        client.receive().unwrap();
    }
    wait_until("the snapshot", GENEROUS, || {
        info(&mut client, "persistence", "rdb_bgsave_in_progress") == "0"
    });
    let incr = "*2\r\n$4\r\nINCR\r\n$6\r\nbefore\r\n".len() as u64;
    offset = (offset.parse::<u64>().unwrap() + incr).to_string();
    // Whoever has more than the snapshot gets everything.
    let server = restart(server, &folder, &["SHUTDOWN", "NOSAVE"], Duration::ZERO);
    let mut client = connect(&server);
    assert_eq!(text(&client.words("GET before")), "1");
    assert_eq!(text(&client.words("EXISTS behind")), "0");
    assert_eq!(info(&mut client, "replication", "master_repl_offset"), offset);
    wait_for_online(&mut client, 1);
    assert_eq!(syncs(&mut client).0, "1", "the replica had a write that is not in the file");
    assert_equal(&mut client, &mut replica);
    assert_eq!(text(&replica.words("EXISTS behind")), "0");
}
