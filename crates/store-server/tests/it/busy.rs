//! Scripts that do not end, that write meanwhile, or that want all memory.

use store_engine::{Config, parse_file};
use store_resp::Reply;
use store_server::Server;
use testkit::RedisServer;

use crate::connection::Connection;

const ENDLESS: &str = "while true do end";
const CAUGHT: &str = "while true do pcall(function() while true do end end) end";
const WRITES: &str = "redis.call('set','half','done') while true do end";

fn impatient() -> Server {
    let server = Server::builder().any_port().setting("busy-reply-threshold", "20");
    server.start().unwrap()
}

fn connect(server: &Server) -> Connection {
    Connection::tcp(server.port().unwrap())
}

fn error(reply: Option<Reply>) -> String {
    match reply {
        Some(Reply::Error(text)) => text,
        other => panic!("no error: {other:?}"),
    }
}

/// Asks until the script is seen to run for too long. What is asked must not depend on it.
fn wait_until_busy(connection: &mut Connection) -> String {
    loop {
        match connection.words("PING") {
            Reply::Error(text) => return text,
            _ => std::thread::yield_now(),
        }
    }
}

#[test]
fn an_endless_script_is_ended_by_script_kill_whatever_it_catches() {
    for code in [ENDLESS, CAUGHT] {
        let server = impatient();
        let (mut caller, mut early) = (connect(&server), connect(&server));
        early.words("PING");
        caller.send(&["EVAL", code, "0"]);

        let busy = wait_until_busy(&mut early);
        assert!(busy.starts_with("BUSY Redis is busy running a script. You can only call SCRIPT"));
        let mut late = connect(&server);
        assert!(error(late.ask(&["GET", "k"])).starts_with("BUSY"));
        assert!(error(late.ask(&["FUNCTION", "KILL"])).starts_with("BUSY"));
        assert_eq!(late.words("SCRIPT KILL"), Reply::Simple("OK".into()));

        let ended = error(caller.receive());
        assert!(ended.contains("Script killed by user with SCRIPT KILL"), "{ended}");
        for connection in [&mut caller, &mut early, &mut late] {
            assert_eq!(connection.words("PING"), Reply::Simple("PONG".into()));
        }
        assert_eq!(late.words("EVAL return(1) 0"), Reply::Integer(1));
    }
}

#[test]
fn a_client_too_many_is_refused_and_counted_while_a_script_runs() {
    let server = Server::builder().any_port().setting("busy-reply-threshold", "20");
    let server = server.setting("maxclients", "2").start().unwrap();
    let (mut caller, mut early) = (connect(&server), connect(&server));
    early.words("PING");
    caller.send(&["EVAL", ENDLESS, "0"]);
    wait_until_busy(&mut early);

    let refused = error(connect(&server).receive());
    assert_eq!(refused, "ERR max number of clients reached");
    assert_eq!(early.words("SCRIPT KILL"), Reply::Simple("OK".into()));
    error(caller.receive());
    let Reply::Bulk(stats) = early.words("INFO stats") else { panic!("no text") };
    let stats = String::from_utf8(stats).unwrap();
    assert!(stats.contains("rejected_connections:1\r\n"), "{stats}");
}

#[test]
fn requests_read_together_with_an_endless_script_are_answered_once_and_in_order() {
    let server = Server::builder()
        .any_port()
        .setting("busy-reply-threshold", "20")
        .setting("enable-debug-command", "yes");
    let server = server.start().unwrap();
    let (mut sleeper, mut caller) = (connect(&server), connect(&server));
    let mut others = [(); 5].map(|()| connect(&server));
    for connection in others.iter_mut().chain([&mut caller]) {
        connection.words("PING");
    }

    // While the server sleeps all of them send, so that it reads them in one turn.
    sleeper.send(&["DEBUG", "SLEEP", "0.2"]);
    caller.send(&["EVAL", ENDLESS, "0"]);
    for other in &mut others {
        other.send_raw(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n");
    }
    for other in &mut others {
        assert!(error(other.receive()).starts_with("BUSY"));
        assert!(error(other.receive()).starts_with("BUSY"));
    }
    assert_eq!(connect(&server).words("SCRIPT KILL"), Reply::Simple("OK".into()));
    assert!(error(caller.receive()).contains("Script killed"));
    for other in &mut others {
        other.send_raw(b"$4\r\nrest\r\n");
        assert_eq!(other.receive(), Some(Reply::Bulk(b"rest".to_vec())));
        assert_eq!(other.words("PING"), Reply::Simple("PONG".into()));
    }
}

#[test]
fn the_same_words_end_a_script_of_redis() {
    let theirs = RedisServer::builder().args(["--busy-reply-threshold", "20"]).start();
    let ours = impatient();
    let ports = [ours.port().unwrap(), theirs.port()];
    let replies = ports.map(|port| {
        let (mut caller, mut other) = (Connection::tcp(port), Connection::tcp(port));
        caller.send(&["EVAL", ENDLESS, "0"]);
        let mut replies = vec![Some(Reply::Error(wait_until_busy(&mut other)))];
        for words in ["MULTI", "SET a b", "EXEC", "FUNCTION KILL", "SCRIPT KILL"] {
            replies.push(Some(other.words(words)));
        }
        replies.push(caller.receive());
        caller.send(&["EVAL", WRITES, "0"]);
        wait_until_busy(&mut other);
        replies.push(Some(other.words("SCRIPT KILL")));
        other.send(&["SHUTDOWN", "NOSAVE"]);
        replies.push(other.receive());
        replies
    });
    assert_eq!(replies[0], replies[1]);
}

#[test]
fn a_function_is_ended_by_function_kill() {
    let server = impatient();
    let (mut caller, mut other) = (connect(&server), connect(&server));
    let library = "#!lua name=l\nredis.register_function('f', function() while true do end end)";
    caller.ask(&["FUNCTION", "LOAD", library]);
    caller.send(&["FCALL", "f", "0"]);

    let busy = wait_until_busy(&mut other);
    assert!(busy.contains("You can only call FUNCTION KILL"), "{busy}");
    assert!(error(other.ask(&["SCRIPT", "KILL"])).starts_with("BUSY"));
    let stats = format!("{:?}", other.words("FUNCTION STATS"));
    assert!(stats.contains("duration_ms") && stats.contains("FCALL"), "{stats}");
    assert_eq!(other.words("FUNCTION KILL"), Reply::Simple("OK".into()));

    assert!(error(caller.receive()).contains("killed"));
    assert_eq!(other.words("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn whoever_may_not_kill_gets_no_word_in_while_a_script_runs() {
    let server = impatient();
    let (mut caller, mut other) = (connect(&server), connect(&server));
    caller.ask(&["ACL", "SETUSER", "reader", "on", "nopass", "~*", "+get", "+ping"]);
    other.words("AUTH reader x");
    let mut stranger = connect(&server);
    caller.words("CONFIG SET requirepass secret");
    caller.send(&["EVAL", ENDLESS, "0"]);

    wait_until_busy(&mut other);
    assert!(error(other.ask(&["SCRIPT", "KILL"])).starts_with("NOPERM"));
    let mut unknown = connect(&server);
    assert!(error(unknown.ask(&["SCRIPT", "KILL"])).starts_with("NOAUTH"));
    assert_eq!(unknown.words("AUTH secret"), Reply::Simple("OK".into()));
    assert_eq!(unknown.words("SCRIPT KILL"), Reply::Simple("OK".into()));
    assert!(error(caller.receive()).contains("killed"));
    stranger.words("PING");
}

#[test]
fn those_who_wait_for_a_key_wait_on_while_a_script_runs() {
    let server = impatient();
    let mut caller = connect(&server);
    let (mut waiting, mut other) = (connect(&server), connect(&server));
    waiting.send(&["BLPOP", "list", "0"]);
    while caller.words("CLIENT LIST TYPE normal") == Reply::Null {}
    caller.send(&["EVAL", ENDLESS, "0"]);
    wait_until_busy(&mut other);
    waiting.send(&["PING"]);
    other.words("SCRIPT KILL");
    caller.receive();
    caller.words("RPUSH list a");
    let bulk = |text: &str| Reply::Bulk(text.into());
    assert_eq!(waiting.receive(), Some(Reply::Array(vec![bulk("list"), bulk("a")])));
    assert_eq!(waiting.receive(), Some(Reply::Simple("PONG".into())));
}

#[test]
fn requests_sent_in_pieces_while_a_script_runs_are_whole_afterwards() {
    let server = impatient();
    let (mut caller, mut other) = (connect(&server), connect(&server));
    let mut cut = connect(&server);
    cut.words("PING");
    caller.send(&["EVAL", ENDLESS, "0"]);
    wait_until_busy(&mut other);
    cut.send_raw(b"*2\r\n$4\r\nECHO\r\n$5\r\nhe");
    assert!(error(other.ask(&["GET", "a"])).starts_with("BUSY"));
    other.words("SCRIPT KILL");
    caller.receive();
    cut.send_raw(b"llo\r\n");
    assert_eq!(cut.receive(), Some(Reply::Bulk(b"hello".to_vec())));
}

#[test]
fn a_server_stops_in_the_middle_of_a_script() {
    let server = impatient();
    let mut caller = connect(&server);
    caller.send(&["EVAL", WRITES, "0"]);
    wait_until_busy(&mut connect(&server));
    drop(server);
    caller.receive();
}

#[test]
fn a_script_that_wants_all_memory_fails_alone() {
    let server = Server::builder().any_port().start().unwrap();
    let mut connection = connect(&server);
    for bomb in [
        "local t={} for i=1,1e9 do t[i]=string.rep('x',100000)..i end",
        "local s='x' while true do s=s..s end",
        "local t={} pcall(function() while true do t[#t+1]={t} end end) return 1",
        "return string.rep('x',1e10)",
        "local function f() return f()+f() end return f()",
    ] {
        let reply = connection.ask(&["EVAL", bomb, "0"]);
        assert!(reply.is_some(), "{bomb}");
        if bomb.starts_with("return") {
            error(reply);
        }
    }
    assert_eq!(connection.words("PING"), Reply::Simple("PONG".into()));
    assert_eq!(connection.words("EVAL return(7) 0"), Reply::Integer(7));
}

#[test]
fn a_renamed_command_is_served_around_like_any_other() {
    let mut config = Config::default();
    let text = "busy-reply-threshold 20\nsave \"\"\nrename-command EVAL luarun\n";
    parse_file(&mut config, text).unwrap();
    let server = Server::builder().config(config).any_port().start().unwrap();
    let (mut caller, mut other) = (connect(&server), connect(&server));
    caller.send(&["luarun", ENDLESS, "0"]);
    assert!(wait_until_busy(&mut other).starts_with("BUSY"));
    assert_eq!(other.words("SCRIPT KILL"), Reply::Simple("OK".into()));
    assert!(error(caller.receive()).contains("Script killed"));
}

#[test]
fn a_script_within_a_library_function_is_ended_by_script_kill() {
    let codes = [
        "return string.find(('a'):rep(5000), '.-.-.-.-b', -0.5)",
        "return ('a'):rep(1e6):find('[' .. ('b'):rep(1e6) .. ']')",
        "return ('a'):rep(1e6):gsub('a-b', '')",
        "table.insert({}, -2^31, 1)",
        "while true do collectgarbage() end",
        "local s = ('x'):rep(1e7) while true do local t = s .. s end",
    ];
    let server = impatient();
    let (mut caller, mut other) = (connect(&server), connect(&server));
    for code in codes {
        caller.send(&["EVAL", code, "0"]);
        assert!(wait_until_busy(&mut other).starts_with("BUSY"), "{code}");
        assert_eq!(other.words("SCRIPT KILL"), Reply::Simple("OK".into()), "{code}");
        assert!(error(caller.receive()).contains("Script killed"), "{code}");
    }
    let written = "redis.call('set', 'k', 'v') return string.find(('a'):rep(5000), '.-.-.-.-b')";
    caller.send(&["EVAL", written, "0"]);
    assert!(wait_until_busy(&mut other).starts_with("BUSY"));
    assert!(error(other.ask(&["SCRIPT", "KILL"])).starts_with("UNKILLABLE"));
    assert!(error(other.ask(&["PING"])).starts_with("BUSY"));
}

#[test]
fn time_goes_on_within_a_transaction() {
    let server = Server::builder().any_port().setting("enable-debug-command", "yes");
    let server = server.start().unwrap();
    let mut connection = connect(&server);
    for line in ["MULTI", "TIME", "DEBUG SLEEP 0.05", "TIME"] {
        connection.words(line);
    }
    let Reply::Array(replies) = connection.words("EXEC") else { panic!("EXEC answers a list") };
    assert_ne!(replies[0], replies[2], "fifty milliseconds passed");
}

/// What MONITOR shows, without moments and ports.
fn monitored(port: u16, requests: &[&[&str]]) -> Vec<String> {
    let (mut monitor, mut caller) = (Connection::tcp(port), Connection::tcp(port));
    monitor.words("MONITOR");
    for request in requests {
        caller.ask(request);
    }
    caller.ask(&["ECHO", "end"]);
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.ends_with(r#""ECHO" "end""#)) {
        let Some(Reply::Simple(line)) = monitor.receive() else { panic!("no line") };
        let (_, line) = line.split_once('[').unwrap();
        let (source, words) = line.split_once(']').unwrap();
        let source = source.split(':').next().unwrap();
        lines.push(format!("[{source}]{words}"));
    }
    lines
}

#[test]
fn monitor_shows_what_starts_a_script_before_what_it_calls() {
    let library = "#!lua name=l\nredis.register_function('f', function() return \
                   redis.call('get', 'a') end)";
    let get = "return redis.call('get', 'a')";
    let requests: [&[&str]; 17] = [
        &["EVAL", "redis.call('set', 'a', '1') return redis.call('get', 'a')", "0"],
        &["EVAL", "return redis.call('nosuch')", "0"],
        &["EVAL", "error('x')", "0"],
        &["EVAL", "no script (", "0"],
        &["EVAL", "return 1", "-1"],
        &["EVAL", "return 1"],
        &["EVALSHA", "0123456789012345678901234567890123456789", "0"],
        &["EVALSHA", "short", "0"],
        &["EVAL_RO", "return redis.call('set', 'a', '1')", "0"],
        &["FUNCTION", "LOAD", library],
        &["FCALL", "f", "0"],
        &["FCALL", "nosuch", "0"],
        &["FCALL_RO", "f", "0"],
        &["MULTI"],
        &["EVAL", get, "0"],
        &["PING"],
        &["EXEC"],
    ];
    let (ours, theirs) = (impatient(), RedisServer::start());
    let seen = monitored(ours.port().unwrap(), &requests);
    assert_eq!(seen, monitored(theirs.port(), &requests));
    assert!(seen.iter().any(|line| line.contains("lua")), "{seen:?}");
}

/// Writes, is busy for a while, and writes again.
const TWO_WRITES: &str = "redis.call('set', KEYS[1], 1) \
    for i = 1, tonumber(ARGV[1]) do math.floor(i) end \
    redis.call('set', KEYS[2], 1)";

fn persistent(folder: &testkit::TempFolder) -> Server {
    let builder = Server::builder().any_port().persist(folder.path());
    let builder = builder.setting("busy-reply-threshold", "20").setting("appendfsync", "always");
    builder.start().unwrap()
}

#[test]
fn nothing_is_kept_of_a_script_that_is_cut_off_by_shutdown_nosave() {
    for queues in [false, true] {
        let folder = testkit::TempFolder::create();
        let server = persistent(&folder);
        let (mut caller, mut other, mut waiter) =
            (connect(&server), connect(&server), connect(&server));
        caller.words("SET before 1");
        waiter.send(&["BLPOP", "list", "0"]);
        let endless = "redis.call('set','half',1) redis.call('rpush','list','x') while true do end";
        // What follows in the same pipeline would rest on the half that is dropped.
        if queues {
            caller.words("MULTI");
            caller.words("SET first 1");
        }
        caller.send(&["EVAL", endless, "0"]);
        caller.send(&["EXEC"]);
        caller.send(&["SET", "after", "1"]);
        wait_until_busy(&mut other);
        let refused = error(other.ask(&["SHUTDOWN"]));
        assert!(refused.starts_with("BUSY"), "{refused}");
        other.send(&["SHUTDOWN", "NOSAVE"]);
        server.wait().unwrap();
        while let Some(reply) = caller.receive() {
            assert_eq!(reply, Reply::Simple("QUEUED".into()), "nothing was acknowledged");
        }
        assert_eq!(waiter.receive(), None, "nobody was given half of it");
        let server = persistent(&folder);
        let mut connection = connect(&server);
        assert_eq!(connection.words("EXISTS before"), Reply::Integer(1));
        assert_eq!(connection.words("EXISTS half list first after"), Reply::Integer(0));
    }
}

#[test]
fn a_script_that_has_written_is_waited_for_when_the_server_is_told_to_stop() {
    for saves in [false, true] {
        let folder = testkit::TempFolder::create();
        let start = || match saves {
            false => persistent(&folder),
            true => Server::builder()
                .any_port()
                .setting("dir", folder.path().to_str().unwrap())
                .setting("save", "3600 1")
                .setting("busy-reply-threshold", "20")
                .start()
                .unwrap(),
        };
        let server = start();
        let (mut caller, mut other) = (connect(&server), connect(&server));
        caller.send(&["EVAL", TWO_WRITES, "2", "one", "two", "20000000"]);
        wait_until_busy(&mut other);
        server.stopper().stop();
        server.wait().unwrap();
        let server = start();
        assert_eq!(connect(&server).words("EXISTS one two"), Reply::Integer(2), "{saves}");
    }
}

#[test]
fn what_the_driver_answers_is_answered_after_the_script_and_in_order() {
    let server = impatient();
    let (mut caller, mut other) = (connect(&server), connect(&server));
    other.words("PING");
    caller.send(&["EVAL", ENDLESS, "0"]);
    wait_until_busy(&mut other);
    other.send(&["REPLCONF", "listening-port", "1"]);
    other.send(&["PING"]);
    let mut third = connect(&server);
    assert!(error(third.ask(&["PING"])).starts_with("BUSY"));
    assert_eq!(third.words("SCRIPT KILL"), Reply::Simple("OK".into()));
    error(caller.receive());
    assert_eq!(other.receive(), Some(Reply::Simple("OK".into())));
    assert_eq!(other.receive(), Some(Reply::Simple("PONG".into())));
}

#[test]
fn shutdown_nosave_ends_a_script_that_has_written_whoever_follows() {
    let server = Server::builder()
        .any_port()
        .setting("busy-reply-threshold", "20")
        .setting("repl-diskless-sync-delay", "0");
    let server = server.start().unwrap();
    let replica = Server::builder().any_port().start().unwrap();
    let (mut caller, mut other) = (connect(&server), connect(&server));
    let mut follower = connect(&replica);
    follower.words(&format!("REPLICAOF 127.0.0.1 {}", server.port().unwrap()));
    caller.words("SET before 1");
    assert_eq!(caller.words("WAIT 1 20000"), Reply::Integer(1));
    caller.send(&["EVAL", WRITES, "0"]);
    wait_until_busy(&mut other);
    assert!(error(other.ask(&["SCRIPT", "KILL"])).starts_with("UNKILLABLE"));
    other.send(&["SHUTDOWN", "NOSAVE"]);
    server.wait().unwrap();
    assert_eq!(follower.words("EXISTS before half"), Reply::Integer(1));
}
