//! Cuts and slow replicas: what was sent is not sent again, and nobody else suffers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use store_server::Server;
use testkit::proxy::{Cut, Proxy};
use testkit::{GENEROUS, Random, wait_until};

use super::support::{
    LogLines, assert_equal, connect, follower, info, primary, text, wait_for_link,
};
use crate::connection::Connection;

fn proxy_to(server: &Server) -> Proxy {
    Proxy::to(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port().unwrap())))
}

/// Writes of many kinds and sizes until told to stop.
fn write_until(server: &Server, is_over: &Arc<AtomicBool>, seed: u64) -> thread::JoinHandle<()> {
    let port = server.port().unwrap();
    let is_over = Arc::clone(is_over);
    thread::spawn(move || {
        let mut connection = Connection::tcp(port);
        let mut random = Random::seeded(seed);
        while !is_over.load(Ordering::SeqCst) {
            let key = random.in_range(0..500);
            let lines = match random.in_range(0..9) {
                0 => vec![format!("SET s:{key} {}", random.next_u64())],
                1 => vec![format!("RPUSH l:{key} a b c"), format!("LPOP l:{key}")],
                2 => vec![format!("HSET h:{key} f{} v", random.in_range(0..50))],
                3 => vec![format!("ZADD z:{key} {} m", random.in_range(0..50))],
                4 => vec![
                    "MULTI".into(),
                    format!("INCR n:{key}"),
                    "INCR total".into(),
                    "EXEC".into(),
                ],
                5 => vec![format!("SET v:{key} x PX {}", random.in_range(1..200))],
                6 => vec![format!("XADD x:{key} * field {key}")],
                7 => vec![format!("SELECT {}", random.in_range(0..4))],
                _ => vec![format!("SET big:{} {}", key % 4, "y".repeat(key as usize * 400))],
            };
            for line in lines {
                connection.words(&line);
            }
        }
    })
}

#[test]
fn a_link_that_is_cut_again_and_again_goes_on_where_it_was() {
    let server = primary().setting("repl-backlog-size", "64mb").start().unwrap();
    let proxy = proxy_to(&server);
    let replica = follower(proxy.port(), &["--repl-backlog-size", "64mb"]);
    let (mut ours, mut theirs) = (connect(&server), Connection::tcp(replica.port()));
    wait_for_link(&mut theirs);
    let is_over = Arc::new(AtomicBool::new(false));
    let writers = [1, 2].map(|seed| write_until(&server, &is_over, seed));
    let mut random = Random::seeded(3);
    for round in 0..12 {
        thread::sleep(Duration::from_millis(random.in_range(1..120)));
        proxy.cut(if round % 2 == 0 { Cut::Reset } else { Cut::Close });
        wait_until("the link to be back", GENEROUS, || {
            info(&mut ours, "stats", "sync_partial_ok").parse::<u64>().unwrap() > round
        });
    }
    is_over.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_equal(&mut ours, &mut theirs);
    assert_eq!(info(&mut ours, "stats", "sync_full"), "1", "a cut cost a full sync");
}

#[test]
fn a_full_sync_under_load_with_large_values_ends_with_equal_data() {
    let server = primary().start().unwrap();
    let mut ours = connect(&server);
    ours.words("DEBUG POPULATE 20000 key 200");
    let is_over = Arc::new(AtomicBool::new(false));
    let writers = [4, 5].map(|seed| write_until(&server, &is_over, seed));
    let replicas = [(); 2].map(|()| follower(server.port().unwrap(), &[]));
    let mut large = connect(&server);
    for index in 0..6 {
        let value = vec![b'a' + index; 5_000_000];
        large.ask(&[b"SET".to_vec(), format!("large:{index}").into_bytes(), value]);
    }
    for replica in &replicas {
        wait_for_link(&mut Connection::tcp(replica.port()));
    }
    thread::sleep(Duration::from_millis(500));
    is_over.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    for replica in &replicas {
        assert_equal(&mut ours, &mut Connection::tcp(replica.port()));
    }
}

#[test]
fn what_is_not_in_the_backlog_any_more_costs_a_full_sync() {
    let server = primary().setting("repl-backlog-size", "16kb").start().unwrap();
    let proxy = proxy_to(&server);
    let replica = follower(proxy.port(), &[]);
    let (mut ours, mut theirs) = (connect(&server), Connection::tcp(replica.port()));
    wait_for_link(&mut theirs);
    proxy.set_door(testkit::proxy::Door::Refuse);
    proxy.cut(Cut::Reset);
    wait_until("the replica to be gone", GENEROUS, || {
        info(&mut ours, "replication", "connected_slaves") == "0"
    });
    for index in 0..2000 {
        ours.words(&format!("SET key:{index} {}", "x".repeat(100)));
    }
    proxy.heal();
    assert_equal(&mut ours, &mut theirs);
    assert_eq!(info(&mut ours, "stats", "sync_full"), "2");
    assert_eq!(info(&mut ours, "stats", "sync_partial_err"), "1");
}

#[test]
fn a_replica_that_reads_nothing_is_closed_by_its_limit_and_the_other_goes_on() {
    let log = LogLines::default();
    let limit = "replica 8mb 0 0";
    let builder = primary().setting("client-output-buffer-limit", limit);
    let server = log.of(builder).start().unwrap();
    let mut ours = connect(&server);
    let mut slow = follower(server.port().unwrap(), &[]);
    let good = follower(server.port().unwrap(), &[]);
    for replica in [&slow, &good] {
        wait_for_link(&mut Connection::tcp(replica.port()));
    }
    slow.pause();
    for index in 0..80 {
        ours.words(&format!("SET key:{} {}", index % 5, "x".repeat(500_000)));
        assert_eq!(text(&ours.words("WAIT 1 20000")), "1");
    }
    wait_until("the slow one to be closed", GENEROUS, || {
        log.count("for overcoming of output buffer limits") == 1
    });
    assert!(info(&mut ours, "replication", "slave1").is_empty());
    assert_equal(&mut ours, &mut Connection::tcp(good.port()));
    slow.resume();
    assert_equal(&mut ours, &mut Connection::tcp(slow.port()));
}

#[test]
fn a_replica_that_says_nothing_is_closed_after_the_time() {
    let log = LogLines::default();
    let server = log.of(primary().setting("repl-timeout", "2")).start().unwrap();
    let mut ours = connect(&server);
    let mut replica = follower(server.port().unwrap(), &[]);
    wait_for_link(&mut Connection::tcp(replica.port()));
    replica.pause();
    wait_until("it to be closed", GENEROUS, || {
        log.count("Disconnecting timedout replica (streaming sync)") == 1
    });
    ours.words("SET meanwhile 1");
    replica.resume();
    assert_equal(&mut ours, &mut Connection::tcp(replica.port()));
    assert_eq!(info(&mut ours, "stats", "sync_full"), "1");
}

#[test]
fn a_replica_killed_by_an_operator_comes_back_with_what_it_has() {
    let server = primary().start().unwrap();
    let mut ours = connect(&server);
    let replica = follower(server.port().unwrap(), &[]);
    let mut theirs = Connection::tcp(replica.port());
    wait_for_link(&mut theirs);
    wait_until("it to be online", GENEROUS, || {
        info(&mut ours, "replication", "slave0").contains("state=online")
    });
    let line = text(&ours.words("CLIENT LIST TYPE replica"));
    assert!(line.contains(" flags=S "), "{line}");
    assert_eq!(line.lines().count(), 1);
    assert_eq!(text(&ours.words("CLIENT KILL TYPE replica")), "1");
    wait_until("it to be back", GENEROUS, || info(&mut ours, "stats", "sync_partial_ok") == "1");
    ours.words("SET after 1");
    assert_equal(&mut ours, &mut theirs);
}
