//! Every server is replaced or restarted while a client writes: Redis goes, ours comes, and no
//! write that WAIT confirmed is lost.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use store_resp::Reply;
use store_server::Server;
use testkit::{GENEROUS, RedisServer, TempFolder, wait_until};

use super::support::{assert_equal, connect, follower, info, primary, text, wait_for_link};
use crate::connection::Connection;

/// Where to write to, and what is known to be safe.
struct Load {
    port: AtomicU16,
    confirmed: AtomicUsize,
    is_over: AtomicBool,
}

impl Load {
    /// Writes one number after the other to whoever takes writes. A number counts once a replica
    /// has it; otherwise it is written again.
    fn run(&self) -> u64 {
        let mut number = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            let mut client = Connection::tcp(self.port.load(Ordering::SeqCst));
            while !self.is_over.load(Ordering::SeqCst) && is_confirmed(&mut client, number) {
                number += 1;
                self.confirmed.fetch_add(1, Ordering::SeqCst);
            }
            thread::sleep(Duration::from_millis(5));
        }
        number
    }

    /// The load goes on for a while.
    fn wait_for_more(&self) {
        let before = self.confirmed.load(Ordering::SeqCst);
        wait_until("more confirmed writes", GENEROUS, || {
            self.confirmed.load(Ordering::SeqCst) >= before + 30
        });
    }

    /// Makes the server at `to` the primary, without losing anything.
    fn hand_over(&self, to: u16) {
        let mut old = Connection::tcp(self.port.load(Ordering::SeqCst));
        // A primary takes a replica for online a little later than the replica does.
        wait_until("FAILOVER to begin", GENEROUS, || {
            let asked = format!("FAILOVER TO 127.0.0.1 {to} TIMEOUT 30000");
            text(&old.words(&asked)) == "OK"
        });
        let mut new = Connection::tcp(to);
        wait_until("the new primary", GENEROUS, || {
            info(&mut new, "replication", "role") == "master"
        });
        self.port.store(to, Ordering::SeqCst);
        wait_for_link(&mut old);
        self.wait_for_more();
    }
}

fn is_confirmed(client: &mut Connection, number: u64) -> bool {
    let key = format!("key:{number}");
    client.try_ask(&["SET", &key, &number.to_string()]) == Some(Reply::Simple("OK".into()))
        && matches!(client.try_ask(&["WAIT", "1", "500"]), Some(Reply::Integer(1..)))
}

/// One of ours that keeps its data in `folder` and follows `port`.
fn ours(folder: &TempFolder, port: u16) -> Server {
    let server = primary()
        .setting("dir", folder.path().to_str().unwrap())
        .setting("save", "3600 1")
        .setting("replicaof", &format!("127.0.0.1 {port}"))
        .start()
        .unwrap();
    wait_for_link(&mut connect(&server));
    server
}

fn end(server: Server) {
    let mut connection = connect(&server);
    connection.send(&["SHUTDOWN"]);
    server.wait().unwrap();
}

fn roll(load: &Load, old: RedisServer, second: RedisServer) -> (Server, Server) {
    let folders = [TempFolder::create(), TempFolder::create()];
    load.wait_for_more();
    // Ours in the place of Redis, one by one.
    let first = ours(&folders[0], old.port());
    load.wait_for_more();
    load.hand_over(first.port().unwrap());
    drop(second);
    let second = ours(&folders[1], first.port().unwrap());
    drop(old);
    load.wait_for_more();
    // Each of ours once.
    end(second);
    let second = ours(&folders[1], first.port().unwrap());
    load.wait_for_more();
    load.hand_over(second.port().unwrap());
    end(first);
    let first = ours(&folders[0], second.port().unwrap());
    load.wait_for_more();
    (second, first)
}

#[test]
fn no_confirmed_write_is_lost_while_every_server_is_replaced_and_restarted() {
    let top = RedisServer::builder()
        .args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"])
        .start();
    let below = follower(top.port(), &["--repl-diskless-sync-delay", "0"]);
    wait_for_link(&mut Connection::tcp(below.port()));
    let load = Load {
        port: AtomicU16::new(top.port()),
        confirmed: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    };
    let (servers, written) = thread::scope(|scope| {
        let writer = scope.spawn(|| load.run());
        let servers = roll(&load, top, below);
        load.is_over.store(true, Ordering::SeqCst);
        (servers, writer.join().unwrap())
    });
    let (mut last, mut replica) = (connect(&servers.0), connect(&servers.1));
    for number in 0..written {
        let value = text(&last.words(&format!("GET key:{number}")));
        assert_eq!(value, number.to_string(), "of {written}");
    }
    assert_equal(&mut last, &mut replica);
}
