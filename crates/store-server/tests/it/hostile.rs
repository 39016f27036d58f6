//! Clients that do harm, one test per line of SCENARIOS B 10–20 and D 25 that a running server
//! can show. After each, another client is served as if nothing had been.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use store_resp::Reply;
use store_server::{Server, ServerBuilder};
use testkit::Random;

use crate::connection::Connection;

/// Ends a hung test; measures nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Unbounded, each attack below would take a gigabyte or more. Other tests of the process may
/// grow meanwhile, hence the distance.
const GROWTH_MAX: usize = 300 << 20;

fn start(settings: &[(&str, &str)]) -> Server {
    let with = |builder: ServerBuilder, (name, value): &(&str, &str)| builder.setting(name, value);
    settings.iter().fold(Server::builder().seed(7), with).start().unwrap()
}

fn connect(server: &Server) -> Connection {
    Connection::unix(server.connect().unwrap())
}

fn assert_serves(server: &Server) {
    assert_eq!(connect(server).words("PING"), Reply::Simple("PONG".into()));
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// Writes until the server closes the connection; panics when it takes more than `bytes_max`.
fn flood(stream: &mut UnixStream, piece: &[u8], bytes_max: usize) {
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let mut written = 0;
    while stream.write_all(piece).is_ok() {
        written += piece.len();
        assert!(written <= bytes_max, "{written} bytes and the server still takes more");
    }
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn without_a_password_little_can_be_sent() {
    let server = start(&[("requirepass", "secret")]);
    // Ten arguments of 16 KiB are the most; a request of them is answered, not kept.
    let mut largest = b"*10\r\n".to_vec();
    for _ in 0..10 {
        largest.extend(b"$16384\r\n");
        largest.extend(vec![b'x'; 16384]);
        largest.extend(b"\r\n");
    }
    let mut connection = connect(&server);
    connection.send_raw(&largest);
    assert!(matches!(connection.receive(), Some(Reply::Error(_))));
    for refused in ["*11\r\n", "*1\r\n$16385\r\n", "*2147483647\r\n", "*1\r\n$536870912\r\n"] {
        let mut connection = connect(&server);
        connection.send_raw(refused.as_bytes());
        assert!(
            matches!(connection.receive(), Some(Reply::Error(text))
            if text.starts_with("ERR Protocol error")),
            "{refused:?}"
        );
        assert_eq!(connection.receive(), None, "{refused:?}");
    }
    flood(&mut server.connect().unwrap(), &[b'x'; 16384], 64 << 20);
    assert!(matches!(connect(&server).words("PING"), Reply::Error(_)));
}

#[test]
fn without_a_password_unread_replies_are_few() {
    let server = start(&[("requirepass", "secret")]);
    let before = resident_bytes();
    flood(&mut server.connect().unwrap(), &b"PING\r\n".repeat(10_000), 256 << 20);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes for a client that has not logged in");
}

#[test]
fn giant_requests_are_refused_before_they_are_kept() {
    let server = start(&[("client-query-buffer-limit", "1mb"), ("proto-max-bulk-len", "1mb")]);
    let before = resident_bytes();
    for header in ["*2147483648\r\n", "*9223372036854775807\r\n", "*2\r\n$3\r\nGET\r\n$1048577\r\n"]
    {
        let mut connection = connect(&server);
        connection.send_raw(header.as_bytes());
        assert!(matches!(connection.receive(), Some(Reply::Error(_))), "{header:?}");
        assert_eq!(connection.receive(), None, "{header:?}");
    }
    // Arguments are announced and never come: nothing is set aside for them.
    let mut many: Vec<Connection> = (0..150).map(|_| connect(&server)).collect();
    many.iter_mut().for_each(|connection| connection.send_raw(b"*2147483647\r\n$1\r\na\r\n"));
    let mut stream = server.connect().unwrap();
    stream.write_all(b"*1000000\r\n").unwrap();
    flood(&mut stream, &b"$4\r\nabcd\r\n".repeat(1000), 64 << 20);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes");
    assert_serves(&server);
}

#[test]
fn empty_requests_between_others_ask_for_nothing() {
    for settings in [&[][..], &[("requirepass", "secret")]] {
        let server = start(settings);
        let mut connection = connect(&server);
        for empty in ["*0\r\n", "\r\n", "*-1\r\n", "*0\r\n\r\n*-1\r\n*0\r\n", "   \r\n", "\n"] {
            connection.send_raw(empty.as_bytes());
            connection.send_raw(b"*1\r\n$4\r\nPING\r\n");
            connection.send_raw(empty.as_bytes());
            connection.send_raw(b"PING\r\n");
            let replies = [connection.receive(), connection.receive()];
            let expected = match settings.is_empty() {
                true => Reply::Simple("PONG".into()),
                false => Reply::Error("NOAUTH Authentication required.".into()),
            };
            assert_eq!(replies, [Some(expected.clone()), Some(expected)], "{empty:?}");
        }
    }
}

#[test]
fn clients_that_send_half_a_request_keep_nobody_waiting() {
    let server = Server::builder().any_port().setting("maxclients", "500").start().unwrap();
    let port = server.port().unwrap();
    let mut halves: Vec<Connection> = (0..400).map(|_| Connection::tcp(port)).collect();
    for (at, half) in halves.iter_mut().enumerate() {
        let whole = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
        half.send_raw(&whole[..at % (whole.len() - 1)]);
    }
    let mut connection = Connection::tcp(port);
    for _ in 0..100 {
        assert_eq!(connection.words("INCR n"), connection_reply(&mut connection));
    }
    drop(halves);
    assert_eq!(connection.words("PING"), Reply::Simple("PONG".into()));
}

/// The number that INCR just told.
fn connection_reply(connection: &mut Connection) -> Reply {
    let Reply::Bulk(digits) = connection.words("GET n") else { panic!("n is there") };
    Reply::Integer(std::str::from_utf8(&digits).unwrap().parse().unwrap())
}

#[test]
fn a_client_that_idles_is_closed_when_the_setting_says_so() {
    let server = start(&[("timeout", "1")]);
    let mut idle = connect(&server);
    assert_eq!(idle.words("PING"), Reply::Simple("PONG".into()));
    assert_eq!(idle.receive(), None);
}

#[test]
fn hostile_patterns_cost_no_more_than_their_length() {
    let server = start(&[]);
    let mut connection = connect(&server);
    let key = "a".repeat(500) + "b";
    connection.words(&format!("SET {key} {key}"));
    let stars = "*a".repeat(200) + "*c";
    let brackets = "[a-".repeat(200);
    let escapes = "\\".repeat(1001);
    let long = "?".repeat(60_000);
    for pattern in [&stars, &brackets, &escapes, &long] {
        assert_eq!(connection.words(&format!("KEYS {pattern}")), Reply::Array(vec![]));
        connection.words(&format!("SCAN 0 MATCH {pattern} COUNT 100"));
        connection.words(&format!("CONFIG GET {pattern}"));
        connection.words(&format!("ACL SETUSER bob ~{pattern} &{pattern} +@all on nopass"));
        connection.words(&format!("ACL DRYRUN bob GET {key}"));
        connection.words(&format!("ACL DRYRUN bob PUBLISH {key} x"));
        let mut listener = connect(&server);
        listener.words(&format!("PSUBSCRIBE {pattern}"));
        assert_eq!(connection.words(&format!("PUBLISH {key} x")), Reply::Integer(0));
    }
}

#[test]
fn other_protocols_are_closed_on() {
    let server = start(&[]);
    let client_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\x00\xff\r\n";
    let smtp = b"EHLO example.org\r\n";
    for (bytes, is_closed) in [
        (&b"POST / HTTP/1.1\r\n"[..], true),
        (b"Host: x\r\n", true),
        (b"host: x\r\nSET a 1\r\n", true),
        (client_hello, false),
        (smtp, false),
    ] {
        let mut stream = server.connect().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = [0; 4096];
        let count = stream.read(&mut answer).unwrap_or(0);
        match is_closed {
            true => assert_eq!(count, 0, "{bytes:?}"),
            false => assert_eq!(answer[0], b'-', "{bytes:?}"),
        }
    }
    assert_eq!(connect(&server).words("DBSIZE"), Reply::Integer(0));
}

#[test]
fn sessions_that_vanish_in_the_middle_leave_nothing_behind() {
    let server = start(&[]);
    for request in [
        "MULTI",
        "SUBSCRIBE a b c",
        "PSUBSCRIBE *",
        "SSUBSCRIBE s",
        "MONITOR",
        "WATCH k",
        "BLPOP l 0",
        "CLIENT TRACKING ON BCAST",
        "CLIENT REPLY OFF",
        "WAIT 1 0",
    ] {
        let mut connection = connect(&server);
        let words: Vec<&str> = request.split(' ').collect();
        connection.send(&words);
        if request == "MULTI" {
            connection.words("SET k v");
            connection.words("BLPOP l 0");
        }
        drop(connection);
    }
    let mut connection = connect(&server);
    testkit::wait_until("only one client is left", testkit::GENEROUS, || {
        info(&mut connection, "connected_clients") == "1"
    });
    connection.words("SET k w");
    connection.words("RPUSH l x");
    assert_eq!(connection.words("LLEN l"), Reply::Integer(1));
    assert_eq!(connection.words("PUBLISH a x"), Reply::Integer(0));
    for (name, left) in [
        ("pubsub_channels", "0"),
        ("pubsub_patterns", "0"),
        ("pubsubshard_channels", "0"),
        ("blocked_clients", "0"),
        ("tracking_clients", "0"),
    ] {
        assert_eq!(info(&mut connection, name), left, "{name}");
    }
}

fn info(connection: &mut Connection, name: &str) -> String {
    let Reply::Bulk(text) = connection.words("INFO everything") else { panic!("INFO is text") };
    let text = String::from_utf8(text).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("INFO has no {name}")).to_owned()
}

#[test]
fn a_blocked_session_can_be_killed_and_takes_nothing() {
    let server = start(&[]);
    let mut connection = connect(&server);
    for kind in ["BLPOP l 0", "BLMOVE l m LEFT LEFT 0", "BZPOPMIN l 0", "XREAD BLOCK 0 STREAMS l $"]
    {
        let mut waiting = connect(&server);
        let Reply::Integer(id) = waiting.words("CLIENT ID") else { panic!("an id is a number") };
        waiting.send(&kind.split(' ').collect::<Vec<_>>());
        testkit::wait_until("it waits", testkit::GENEROUS, || {
            info(&mut connection, "blocked_clients") == "1"
        });
        // In one turn of the server: killed, and then fed.
        connection.send_raw(format!("CLIENT KILL ID {id}\r\nRPUSH l x\r\nLLEN l\r\n").as_bytes());
        let replies: Vec<Reply> = (0..3).map(|_| connection.receive().unwrap()).collect();
        assert_eq!(replies, [Reply::Integer(1), Reply::Integer(1), Reply::Integer(1)], "{kind}");
        assert_eq!(waiting.receive(), None, "{kind}");
        connection.words("DEL l");
    }
}

#[test]
fn a_million_pipelined_requests_are_answered_in_order() {
    const REQUESTS: usize = 1_000_000;
    let server = start(&[]);
    let mut stream = server.connect().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let piece = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(1000);
        for _ in 0..REQUESTS / 1000 {
            stream.write_all(&piece).unwrap();
        }
    });
    let (mut bytes, mut chunk) = (0, vec![0; 1 << 16]);
    let expected: usize = (1..=REQUESTS).map(|number| number.to_string().len() + 3).sum();
    let mut tail = Vec::new();
    while bytes < expected {
        let count = reader.read(&mut chunk).unwrap();
        assert!(count > 0, "closed after {bytes} bytes");
        bytes += count;
        tail.extend_from_slice(&chunk[..count]);
        tail.drain(..tail.len().saturating_sub(10));
    }
    writer.join().unwrap();
    assert!(tail.ends_with(b":1000000\r\n"));
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_at_its_limit() {
    let limit = "pubsub 1mb 0 0";
    let server = start(&[("client-output-buffer-limit", limit)]);
    let mut deaf: Vec<Connection> = (0..60).map(|_| connect(&server)).collect();
    deaf.iter_mut().for_each(|connection| _ = connection.words("SUBSCRIBE news"));
    let mut monitor = connect(&server);
    monitor.words("MONITOR");
    let mut connection = connect(&server);
    let before = resident_bytes();
    let message = vec![b'x'; 100_000];
    // All of it in one transaction, so that nothing is written in between.
    connection.words("MULTI");
    for _ in 0..150 {
        connection.ask(&[&b"PUBLISH"[..], b"news", &message]).unwrap();
    }
    let Some(Reply::Array(counts)) = connection.ask(&["EXEC"]) else { panic!("EXEC answers") };
    assert_eq!(counts[0], Reply::Integer(60));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes");
    assert_eq!(connection.words("PUBSUB NUMSUB news"), numsub("news", 0));
    assert_eq!(connection.words("CLIENT LIST TYPE pubsub"), Reply::Bulk(vec![]));
    assert_serves(&server);
}

fn numsub(channel: &str, count: i64) -> Reply {
    Reply::Array(vec![Reply::Bulk(channel.into()), Reply::Integer(count)])
}

#[test]
fn a_client_that_asks_for_more_than_it_reads_is_closed_at_its_limit() {
    let server = start(&[("client-output-buffer-limit", "normal 1mb 0 0")]);
    let mut connection = connect(&server);
    connection.ask(&[&b"SET"[..], b"key", &vec![b'x'; 1_000_000]]).unwrap();
    let before = resident_bytes();
    // One read of the server holds three thousand of these: three gigabytes of replies.
    let mut greedy = server.connect().unwrap();
    let _ = greedy.write_all(&b"GET key\r\n".repeat(7000));
    testkit::wait_until("the greedy client is closed", testkit::GENEROUS, || {
        greedy.write_all(b"PING\r\n").is_err()
    });
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes");
    assert_eq!(connection.words("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn bytes_of_any_kind_never_stop_the_server() {
    let seed = testkit::seed();
    let mut random = Random::seeded(seed);
    let server = start(&[]);
    let parts: &[&[u8]] = &[
        b"*3\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"$3\r\nSET\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$1\r\na\r\n",
        b"\r\n",
        b"\n",
        b"\0",
        b"*1\r\n$4\r\nPING\r\n",
        b"PING\r\n",
        b"\"",
        b"'",
        b"*",
        b"$",
        b"9999999999999999999999",
        b"\xff\xfe",
        b" ",
        b"*2\r\n$4\r\nECHO\r\n",
        b"$5\r\nhello\r\n",
        b"*1\r\n:1\r\n",
        b"EVAL \"",
        b"*99999\r\n",
        b"-1",
        b"$1048576\r\n",
        b"MULTI\r\n",
        b"SUBSCRIBE a\r\n",
        b"HELLO 3\r\n",
    ];
    for round in 0..300 {
        let mut stream = server.connect().unwrap();
        for _ in 0..random.in_range(1..40) {
            let part = *random.choose(parts);
            // The server may have closed by now.
            if stream.write_all(part).is_err() {
                break;
            }
        }
        drop(stream);
        if round % 30 == 0 {
            assert_serves(&server);
        }
    }
    assert_serves(&server);
}

/// What rules are made up from.
const PIECES: &[&str] = &[
    "on",
    "off",
    "~",
    "*",
    "%",
    "R",
    "W",
    "&",
    "+",
    "-",
    "@",
    "all",
    "get",
    "set",
    "|",
    "(",
    ")",
    " ",
    ">",
    "<",
    "#",
    "!",
    "read",
    "nopass",
    "reset",
    "",
    "\\",
    "[",
    "a",
    "~a",
    "+@read",
    "config",
    "\u{ff}",
    "clearselectors",
    "%R~",
    "+config|get",
];

/// D 25: rules of any bytes make a user who can do nothing that no rule allows.
#[test]
fn rules_of_any_bytes_are_refused_or_harmless() {
    let mut random = Random::seeded(testkit::seed());
    let server = start(&[]);
    let mut connection = connect(&server);
    for _ in 0..2000 {
        let mut words = vec!["ACL".to_owned(), "SETUSER".to_owned(), "bob".to_owned()];
        for _ in 0..random.in_range(1..5) {
            let count = random.in_range(1..6);
            words.push((0..count).map(|_| *random.choose(PIECES)).collect());
        }
        let reply = connection.ask(&words).expect("the connection stays open");
        assert!(matches!(reply, Reply::Simple(_) | Reply::Error(_)), "{words:?} → {reply:?}");
        assert_can_be_told_again(&mut connection);
        if random.in_range(0..4) == 0 {
            connection.words("ACL DELUSER bob");
        }
    }
}

/// What a user is told to be can be told again, and comes to the same.
fn assert_can_be_told_again(connection: &mut Connection) {
    let Some(rules) = rules_of(connection, "bob") else { return };
    let again = connection.words(&format!("ACL SETUSER copy reset {rules}"));
    assert_eq!(again, ok(), "{rules}");
    let copied = rules_of(connection, "copy").expect("it was just made");
    assert_eq!(without_sanitizing(&copied), without_sanitizing(&rules));
}

fn rules_of(connection: &mut Connection, user: &str) -> Option<String> {
    let Reply::Array(lines) = connection.words("ACL LIST") else { panic!("a list") };
    let prefix = format!("user {user} ");
    lines.iter().find_map(|line| match line {
        Reply::Bulk(line) => Some(String::from_utf8_lossy(line).strip_prefix(&prefix)?.to_owned()),
        _ => None,
    })
}

/// `reset` says so explicitly, a new user does not.
fn without_sanitizing(rules: &str) -> String {
    rules.replace(" sanitize-payload", "")
}

/// What arguments are made up from: keys with secrets, keys of the user, words of all options.
const WORDS: &[&str] = &[
    "s",
    "l",
    "t",
    "h",
    "z",
    "x",
    "own:a",
    "own:b",
    "1",
    "2",
    "0",
    "-1",
    "f",
    "STORE",
    "GET",
    "BY",
    "LIMIT",
    "COUNT",
    "KEYS",
    "STREAMS",
    "$",
    "AND",
    "LEFT",
    "RIGHT",
    "MATCH",
    "*",
    "WITHSCORES",
    "AGGREGATE",
    "WEIGHTS",
    "u8",
    "SET",
    "(",
    "[a",
    "+",
    "-",
    "km",
    "FROMMEMBER",
    "IDX",
    "DB",
    "REPLACE",
    "NX",
    "XX",
    "EX",
    "GROUP",
    "STOREDIST",
    "numkeys",
    "3",
    "s",
    "l",
    "z",
];

/// D 25: whatever a command is given, a user without keys neither sees nor changes one.
#[test]
fn a_user_without_keys_cannot_reach_any_by_any_command() {
    let seed = testkit::seed();
    let mut random = Random::seeded(seed);
    let server = start(&[("enable-debug-command", "yes")]);
    let mut admin = connect(&server);
    for line in [
        "SET s TOPSECRET",
        "RPUSH l TOPSECRET 1 2",
        "SADD t TOPSECRET x",
        "HSET h f TOPSECRET",
        "ZADD z 1 TOPSECRET",
        "XADD x 1-1 f TOPSECRET",
        "ACL SETUSER bob on nopass ~own:* &* +@all -@dangerous -@admin -@blocking -@connection",
        "ACL SETUSER bob +keys +sort +info",
    ] {
        admin.words(line);
    }
    let names = command_names(&mut admin);
    let digest = admin.words("DEBUG DIGEST-VALUE s l t h z x");
    let mut user = connect(&server);
    user.words("AUTH bob x");
    for _ in 0..20_000 {
        let mut request = vec![random.choose(&names).clone()];
        for _ in 0..random.in_range(1..8) {
            request.push((*random.choose(WORDS)).to_owned());
        }
        let Some(reply) = user.ask(&request) else {
            user = connect(&server);
            user.words("AUTH bob x");
            continue;
        };
        let told = format!("{reply:?}");
        assert!(!told.contains("TOPSECRET"), "seed {seed}: {request:?} → {told}");
    }
    assert_eq!(admin.words("DEBUG DIGEST-VALUE s l t h z x"), digest, "seed {seed}");
}

fn command_names(connection: &mut Connection) -> Vec<String> {
    let Reply::Array(names) = connection.words("COMMAND LIST") else { panic!("a list") };
    let name = |reply: &Reply| match reply {
        Reply::Bulk(name) => String::from_utf8(name.clone()).unwrap(),
        other => panic!("{other:?} is no name"),
    };
    names.iter().map(name).collect()
}
