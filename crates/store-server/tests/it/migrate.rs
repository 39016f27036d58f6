//! MIGRATE between our servers and real ones: keys move, wait, or stay.

use std::time::Duration;

use store_resp::Reply;
use store_server::{Server, ServerBuilder};
use testkit::proxy::{Cut, Direction, Proxy, Rule};
use testkit::{GENEROUS, RedisServer, ServerProgram, TempFolder, wait_until};

use crate::connection::Connection;
use crate::replication::support::{
    assert_equal, connect, follow, info, primary, text, wait_for_online,
};
use crate::snapshots::{requests, send_all};

fn redis(arguments: &[&str]) -> RedisServer {
    let builder = RedisServer::builder().program(ServerProgram::redis());
    builder.args(["--enable-debug-command", "yes"]).args(arguments).start()
}

fn ours() -> ServerBuilder {
    Server::builder().any_port().setting("enable-debug-command", "yes")
}

fn keys(connection: &mut Connection) -> Vec<Vec<u8>> {
    let Reply::Array(keys) = connection.words("KEYS *") else { panic!("no list") };
    let key = |reply| match reply {
        Reply::Bulk(key) => key,
        other => panic!("{other:?}"),
    };
    keys.into_iter().map(key).collect()
}

/// Sends these keys to a port; the reply is still to come.
fn send_migrate(source: &mut Connection, port: u16, timeout: &str, keys: &[Vec<u8>]) {
    let port = port.to_string();
    let mut words: Vec<&[u8]> =
        vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", timeout.as_bytes(), b"KEYS"];
    words.extend(keys.iter().map(Vec::as_slice));
    source.send(&words);
}

fn migrate(source: &mut Connection, port: u16, keys: &[Vec<u8>]) -> String {
    send_migrate(source, port, "20000", keys);
    text(&source.receive().expect("it stays open"))
}

fn waiting(connection: &mut Connection, count: usize) {
    let expected = count.to_string();
    wait_until("they wait", GENEROUS, || {
        info(connection, "clients", "blocked_clients") == expected
    });
}

/// Everything in database 0 moves, a hundred keys at a time.
fn assert_moves(source: &mut Connection, target: &mut Connection, port: u16) {
    source.words("SELECT 9");
    source.words("FLUSHDB");
    source.words("SELECT 0");
    let digest = text(&source.words("DEBUG DIGEST"));
    let end = text(&source.words("PEXPIRETIME zset:129"));
    let all = keys(source);
    for some in all.chunks(100) {
        assert_eq!(migrate(source, port, some), "OK");
    }
    assert_eq!(text(&source.words("DBSIZE")), "0");
    assert_eq!(text(&target.words("DBSIZE")), all.len().to_string());
    assert_eq!(text(&target.words("DEBUG DIGEST")), digest);
    let late_ms: i64 = text(&target.words("PEXPIRETIME zset:129")).parse::<i64>().unwrap()
        - end.parse::<i64>().unwrap();
    assert!((0..20_000).contains(&late_ms), "its time has moved by {late_ms} ms");
}

#[test]
fn keys_of_every_kind_move_to_redis_and_back() {
    let (ours, theirs) = (ours().start().unwrap(), redis(&[]));
    let (mut here, mut there) = (connect(&ours), Connection::tcp(theirs.port()));
    send_all(&mut here, &requests());
    here.words("FUNCTION FLUSH");
    assert_moves(&mut here, &mut there, theirs.port());
    assert_moves(&mut there, &mut here, ours.port().unwrap());
}

#[test]
fn refusals_are_those_of_redis() {
    let (ours, theirs) = (ours().start().unwrap(), redis(&[]));
    let target = redis(&["--requirepass", "secret", "--databases", "2"]);
    let mut there = Connection::tcp(target.port());
    there.words("AUTH secret");
    let port = target.port();
    let script = [
        format!("MIGRATE 127.0.0.1 {port} a 0 5000"),
        format!("MIGRATE 127.0.0.1 {port} a 0 5000 AUTH wrong"),
        format!("MIGRATE 127.0.0.1 {port} a 0 5000 AUTH2 nobody secret"),
        format!("MIGRATE 127.0.0.1 {port} a 5 5000 AUTH secret"),
        "DBSIZE".to_owned(),
        format!("MIGRATE 127.0.0.1 {port} a 1 5000 COPY AUTH secret"),
        format!("MIGRATE 127.0.0.1 {port} a 1 5000 COPY AUTH secret"),
        format!("MIGRATE 127.0.0.1 {port} a 1 0 COPY REPLACE AUTH2 default secret"),
        "EXISTS a b".to_owned(),
        // The first is there already; the second moves all the same.
        format!("MIGRATE 127.0.0.1 {port} \"\" 1 5000 AUTH secret KEYS a b none"),
        "EXISTS a b".to_owned(),
        format!("MIGRATE 127.0.0.1 {port} a 1 5000 REPLACE AUTH secret"),
        "EXISTS a b".to_owned(),
        "SET a again".to_owned(),
        "MIGRATE 127.0.0.1 1 a 0 5000".to_owned(),
        "MIGRATE no-such-host.invalid 1 a 0 5000".to_owned(),
        "MIGRATE 127.0.0.1 nothing a 0 5000".to_owned(),
        "EXISTS a".to_owned(),
    ];
    let mut replies = Vec::new();
    for mut source in [connect(&ours), Connection::tcp(theirs.port())] {
        there.words("FLUSHALL");
        source.words("MSET a 1 b 2");
        replies.push(script.each_ref().map(|line| {
            let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('"')).collect();
            text(&source.ask(&words).unwrap())
        }));
    }
    for (line, (ours, theirs)) in script.iter().zip(replies[0].iter().zip(&replies[1])) {
        assert_eq!(ours, theirs, "{line}");
    }
}

#[test]
fn a_refused_database_gets_no_key() {
    let (ours, target) = (ours().start().unwrap(), redis(&["--databases", "2"]));
    let (mut here, mut there) = (connect(&ours), Connection::tcp(target.port()));
    here.words("SET a 1");
    let refused = text(&here.words(&format!("MIGRATE 127.0.0.1 {} a 5 5000", target.port())));
    assert!(refused.contains("DB index is out of range"), "{refused}");
    assert_eq!(text(&there.words("DBSIZE")), "0", "Redis puts it into another database");
}

/// A target that has taken keys and says nothing until it is healed.
struct Silent {
    proxy: Proxy,
    ours: Server,
    target: RedisServer,
}

impl Silent {
    fn start(builder: ServerBuilder) -> Self {
        let target = redis(&[]);
        let proxy = Proxy::in_front_of(&target);
        proxy.set_rule(Direction::ToClient, Rule::HalfOpen);
        Self { proxy, ours: builder.start().unwrap(), target }
    }

    fn here(&self) -> Connection {
        connect(&self.ours)
    }

    fn there(&self) -> Connection {
        Connection::tcp(self.target.port())
    }

    /// The target has so many keys.
    fn wait_for_keys(&self, count: usize) {
        let (mut there, expected) = (self.there(), count.to_string());
        let has_all = || text(&there.words("DBSIZE")) == expected;
        wait_until("the target has them", GENEROUS, has_all);
    }
}

#[test]
fn a_key_on_its_way_is_read_and_whoever_would_change_it_waits() {
    let world = Silent::start(ours());
    let mut admin = world.here();
    admin.words("RPUSH away x");
    admin.words("SET other 1");
    admin.words("SCRIPT FLUSH");
    let mut mover = world.here();
    let id = text(&mover.words("CLIENT ID"));
    send_migrate(&mut mover, world.proxy.port(), "20000", &[b"away".to_vec()]);
    waiting(&mut admin, 1);
    // The answer to the move would go to its next request.
    assert_eq!(text(&admin.words(&format!("CLIENT UNBLOCK {id}"))), "0", "it goes on");

    assert_eq!(text(&admin.words("LINDEX away 0")), "x", "it is read");
    assert_eq!(text(&admin.words("INCR other")), "2", "others change");
    let undeclared = ["EVAL", "return redis.call('rpush', 'away', 'y')", "0"];
    assert!(text(&admin.ask(&undeclared).unwrap()).contains("TRYAGAIN"));

    let mut waiters: Vec<Connection> = (0..5).map(|_| world.here()).collect();
    waiters[0].send(&["RPUSH", "away", "y"]);
    waiters[1].send(&["EVAL", "return redis.call('rpush', KEYS[1], 'z')", "1", "away"]);
    for words in [&["MULTI"][..], &["SET", "other", "9"], &["DEL", "away"], &["EXEC"]] {
        waiters[2].send(words);
    }
    waiters[3].send(&["MIGRATE", "127.0.0.1", "1", "away", "0", "1000"]);
    // It waits for a key of its own, and would change the one on its way when it is woken.
    waiters[4].send(&["BLMOVE", "source", "away", "LEFT", "RIGHT", "0"]);
    waiting(&mut admin, 6);
    assert_eq!(text(&admin.words("RPUSH source s")), "1");
    assert_eq!(text(&admin.words("LLEN source")), "1", "nobody was served");

    world.proxy.heal();
    assert_eq!(text(&mover.receive().unwrap()), "OK");
    for waiter in &mut waiters {
        assert!(waiter.receive().is_some());
    }
    assert_eq!(text(&world.there().words("LRANGE away 0 -1")), "[\"x\"]", "as it was sent");
    waiting(&mut admin, 0);
}

#[test]
fn keys_that_nobody_answered_for_stay_and_those_answered_for_go() {
    let world = Silent::start(ours());
    let mut here = world.here();
    here.words("MSET a 1 b 2");
    world.proxy.heal();
    // SELECT is answered, and so is the first key.
    let answers = "+OK\r\n+OK\r\n".len() as u64;
    let cut = Rule::CutAfter { bytes: answers, cut: Cut::Close };
    world.proxy.set_rule(Direction::ToClient, cut);
    let keys = [b"a".to_vec(), b"b".to_vec()];
    let reply = migrate(&mut here, world.proxy.port(), &keys);
    assert!(reply.contains("IOERR error or timeout"), "{reply}");
    assert_eq!(text(&here.words("EXISTS a")), "0");
    assert_eq!(text(&here.words("EXISTS b")), "1");
    assert_eq!(text(&world.there().words("GET a")), "1");
    assert_eq!(text(&here.words("SET b again")), "OK", "it is not held back any more");
}

#[test]
fn what_takes_too_long_stays_here() {
    let world = Silent::start(ours());
    let mut here = world.here();
    here.words("SET a 1");
    send_migrate(&mut here, world.proxy.port(), "200", &[b"a".to_vec()]);
    let reply = text(&here.receive().unwrap());
    assert!(reply.contains("IOERR error or timeout"), "{reply}");
    assert_eq!(text(&here.words("GET a")), "1");
    assert_eq!(text(&here.words("SET a 2")), "OK");
}

#[test]
fn a_migration_is_finished_though_the_session_that_asked_is_gone() {
    let world = Silent::start(ours());
    let mut admin = world.here();
    admin.words("MSET a 1 b 2");
    let mut mover = world.here();
    send_migrate(&mut mover, world.proxy.port(), "20000", &[b"a".to_vec(), b"b".to_vec()]);
    waiting(&mut admin, 1);
    drop(mover);
    waiting(&mut admin, 0);
    world.proxy.heal();
    world.wait_for_keys(2);
    wait_until("they go from here", GENEROUS, || text(&admin.words("DBSIZE")) == "0");
}

#[test]
fn a_server_that_becomes_a_replica_keeps_what_is_on_its_way() {
    let world = Silent::start(ours());
    let other = ours().start().unwrap();
    let mut admin = world.here();
    admin.words("SET a 1");
    let mut mover = world.here();
    send_migrate(&mut mover, world.proxy.port(), "20000", &[b"a".to_vec()]);
    waiting(&mut admin, 1);
    follow(&mut admin, other.port().unwrap());
    assert!(mover.receive().is_some_and(|reply| matches!(reply, Reply::Error(_))));
    assert_eq!(text(&admin.words("REPLICAOF NO ONE")), "OK");
    assert_eq!(text(&admin.words("SET a 2")), "OK", "nothing is held back");
}

#[test]
fn migrations_that_wait_for_their_turn_end_when_the_server_becomes_a_replica() {
    let world = Silent::start(ours());
    let other = ours().start().unwrap();
    let mut admin = world.here();
    let mut movers: Vec<Connection> = (0..70).map(|_| world.here()).collect();
    for (number, mover) in movers.iter_mut().enumerate() {
        mover.words(&format!("SET key:{number} 1"));
        let keys = [format!("key:{number}").into_bytes()];
        send_migrate(mover, world.proxy.port(), "60000", &keys);
    }
    waiting(&mut admin, 70);
    follow(&mut admin, other.port().unwrap());
    for mover in &mut movers {
        assert!(matches!(mover.receive(), Some(Reply::Error(_))));
    }
    assert_eq!(text(&admin.words("REPLICAOF NO ONE")), "OK");
    assert_eq!(text(&admin.words("SET key:69 2")), "OK", "it is not held back");
    assert_eq!(text(&admin.words("FLUSHALL")), "OK");
}

#[test]
fn a_copy_that_fails_lets_nobody_change_a_key_that_moves_elsewhere() {
    let (world, nowhere) = (Silent::start(ours()), redis(&[]));
    let (mut admin, mut copier, mut mover) = (world.here(), world.here(), world.here());
    let silent = Proxy::in_front_of(&nowhere);
    silent.set_rule(Direction::ToClient, Rule::HalfOpen);
    admin.words("SET k old");
    let port = silent.port().to_string();
    copier.send(&["MIGRATE", "127.0.0.1", &port, "k", "0", "500", "COPY"]);
    waiting(&mut admin, 1);
    send_migrate(&mut mover, world.proxy.port(), "60000", &[b"k".to_vec()]);
    let failed = text(&copier.receive().unwrap());
    assert!(failed.contains("IOERR"), "{failed}");
    let mut writer = world.here();
    writer.send(&["SET", "k", "new"]);
    waiting(&mut admin, 2);
    assert_eq!(text(&admin.words("GET k")), "old", "it is on its way");
    world.proxy.heal();
    assert_eq!(text(&mover.receive().unwrap()), "OK");
    assert_eq!(text(&writer.receive().unwrap()), "OK");
    assert_eq!(text(&admin.words("GET k")), "new", "what was acknowledged is here");
}

#[test]
fn replicas_and_files_hear_that_keys_are_gone() {
    let folder = TempFolder::create();
    let server = primary().persist(folder.path()).start().unwrap();
    let (replica, target) = (ours().start().unwrap(), redis(&[]));
    let (mut here, mut there) = (connect(&server), connect(&replica));
    follow(&mut there, server.port().unwrap());
    wait_for_online(&mut here, 1);
    for number in 0..300 {
        here.words(&format!("SET key:{number} {number} EX 1000"));
    }
    let moved: Vec<_> = (0..250).map(|number| format!("key:{number}").into_bytes()).collect();
    assert_eq!(migrate(&mut here, target.port(), &moved), "OK");
    assert_equal(&mut here, &mut there);
    assert_eq!(text(&there.words("DBSIZE")), "51");
    drop((here, server));
    let server = primary().persist(folder.path()).start().unwrap();
    assert_eq!(text(&connect(&server).words("DBSIZE")), "51");
}

#[test]
fn a_large_value_moves_while_others_are_served() {
    let (source, target) = (ours().start().unwrap(), ours().start().unwrap());
    let (mut here, mut there) = (connect(&source), connect(&target));
    let fill = "for i = 1, 30000 do redis.call('hset', KEYS[1], 'field:' .. i, \
                string.rep('v', 60) .. i) end";
    assert!(here.ask(&["EVAL", fill, "1", "big"]).is_some());
    let digest = text(&here.words("DEBUG DIGEST-VALUE big"));
    let mut mover = connect(&source);
    send_migrate(&mut mover, target.port().unwrap(), "20000", &[b"big".to_vec()]);
    let mut served = 0;
    wait_until("it has moved", GENEROUS, || {
        assert_eq!(text(&here.words("PING")), "PONG");
        assert_eq!(text(&there.words("PING")), "PONG");
        served += 1;
        text(&here.words("EXISTS big")) == "0"
    });
    assert_eq!(text(&mover.receive().unwrap()), "OK");
    assert_eq!(text(&there.words("DEBUG DIGEST-VALUE big")), digest);
    // A connection that was kept is used again.
    let came = text(&there.words("INFO stats"));
    here.words("SET small 1");
    assert_eq!(migrate(&mut mover, target.port().unwrap(), &[b"small".to_vec()]), "OK");
    let count = |text: &str| {
        text.lines().find(|line| line.starts_with("total_connections_received")).map(str::to_owned)
    };
    assert_eq!(count(&came), count(&text(&there.words("INFO stats"))));
    assert!(served > 0);
}

#[test]
fn a_large_payload_that_is_damaged_is_refused_and_one_in_a_transaction_is_taken() {
    let server = ours().start().unwrap();
    let mut here = connect(&server);
    let value = vec![b'x'; 3_000_000];
    here.words("CONFIG SET rdbcompression no");
    here.ask(&[&b"SET"[..], b"big", &value]).unwrap();
    let Some(Reply::Bulk(payload)) = here.ask(&["DUMP", "big"]) else { panic!("no payload") };
    assert!(payload.len() > 1_048_576);
    let busy = here.ask(&[&b"RESTORE"[..], b"big", b"0", &payload]).unwrap();
    assert_eq!(text(&busy), "-BUSYKEY Target key name already exists.");
    let mut damaged = payload.clone();
    damaged[2_000_000] ^= 1;
    let refused = here.ask(&[&b"RESTORE"[..], b"copy", b"0", &damaged]).unwrap();
    assert_eq!(text(&refused), "-ERR DUMP payload version or checksum are wrong");
    assert_eq!(text(&here.ask(&[&b"RESTORE"[..], b"copy", b"0", &payload]).unwrap()), "OK");
    here.words("MULTI");
    here.ask(&[&b"RESTORE"[..], b"third", b"100000", &payload]).unwrap();
    assert_eq!(text(&here.words("EXEC")), "[+OK]");
    for key in ["copy", "third"] {
        assert_eq!(here.ask(&["GET", key]), Some(Reply::Bulk(value.clone())));
    }
}

/// Which side has each of these keys, and what its value is.
fn sides(here: &mut Connection, there: &mut Connection, key: &str) -> (String, String) {
    (text(&here.words(&format!("GET {key}"))), text(&there.words(&format!("GET {key}"))))
}

#[test]
fn a_crash_of_the_other_side_loses_no_key() {
    let folder = TempFolder::create();
    let start = || {
        let program = ServerProgram::redis();
        let dir = folder.path().to_str().unwrap().to_owned();
        let file = ["--appendonly", "yes", "--appendfsync", "always", "--dir"];
        RedisServer::builder().program(program).args(file).args([dir]).start()
    };
    let (source, mut target) = (ours().start().unwrap(), start());
    let mut here = connect(&source);
    let all: Vec<Vec<u8>> = (0..2000).map(|at| format!("key:{at}").into_bytes()).collect();
    for key in &all {
        here.send(&[&b"SET"[..], key, key]);
    }
    all.iter().for_each(|_| assert!(here.receive().is_some()));
    let proxy = Proxy::in_front_of(&target);
    // Some keys go through before the other side dies.
    proxy.set_rule(
        Direction::ToServer,
        Rule::Slice { bytes: 20_000, pause: Duration::from_millis(50) },
    );
    send_migrate(&mut here, proxy.port(), "2000", &all);
    let mut there = Connection::tcp(target.port());
    wait_until("some are there", GENEROUS, || text(&there.words("DBSIZE")) != "0");
    target.kill();
    let reply = text(&here.receive().unwrap());
    assert!(reply.contains("IOERR"), "{reply}");
    target.restart();
    let mut there = Connection::tcp(target.port());
    for key in &all {
        let key = std::str::from_utf8(key).unwrap();
        let (ours, theirs) = sides(&mut here, &mut there, key);
        assert!(ours == key || theirs == key, "{key} is on neither side");
    }
}
