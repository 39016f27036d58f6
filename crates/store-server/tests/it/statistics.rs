//! What INFO and SLOWLOG count, compared with redis-server.

use std::collections::BTreeMap;

use store_resp::Reply;
use store_server::Server;

use crate::compare::Pair;
use crate::connection::Connection;
use crate::script::Line;

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?} is no text"),
    }
}

/// `calls=…,rejected_calls=…,failed_calls=…` by command, and other counters, without times and
/// without what asking for them changes.
fn counters(connection: &mut Connection) -> BTreeMap<String, String> {
    let mut counters = BTreeMap::new();
    let info = text(connection.words("INFO everything"));
    let is_counted = |name: &str| {
        ["cmdstat_", "errorstat_", "latency_percentiles_"].iter().any(|kind| name.starts_with(kind))
            || name == "total_error_replies"
    };
    for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
        let is_own = name.ends_with("_info") || name.contains("_client|id");
        if !is_counted(name) || is_own {
            continue;
        }
        let is_time = |field: &&str| field.starts_with("usec");
        let percentile = |field: &str| field.split('=').next().unwrap_or_default().to_owned();
        let fields: Vec<String> = match name.starts_with("latency") {
            true => value.split(',').map(percentile).collect(),
            false => value.split(',').filter(|f| !is_time(f)).map(str::to_owned).collect(),
        };
        counters.insert(name.to_owned(), fields.join(","));
    }
    counters
}

/// The requests of the slow log, newest first, without what polls and counts.
fn slow_requests(connection: &mut Connection) -> Vec<String> {
    let Reply::Array(entries) = connection.words("SLOWLOG GET 1000") else { panic!("no list") };
    let args = |entry: Reply| match entry {
        Reply::Array(fields) => format!("{:?}", fields[3]),
        other => panic!("{other:?} is no entry"),
    };
    let is_own = |args: &String| ["INFO", "CLIENT", "SLOWLOG"].iter().any(|own| args.contains(own));
    entries.into_iter().map(args).filter(|args| !is_own(args)).collect()
}

/// Runs the lines on both servers, which begin anew.
fn run(pair: &mut Pair, lines: &[&str]) {
    pair.start_over();
    run_on(pair, &[&["CONFIG RESETSTAT", "SLOWLOG RESET"], lines].concat());
}

fn run_on(pair: &mut Pair, lines: &[&str]) {
    for line in lines {
        if let Err(difference) = pair.run(&Line::parse(line)) {
            panic!("{lines:?}: {difference}");
        }
    }
}

/// The same, and compares what they counted.
fn compare(pair: &mut Pair, lines: &[&str]) {
    run(pair, lines);
    let (ours, theirs) = pair.connection("main");
    let (our_counters, their_counters) = (counters(ours), counters(theirs));
    assert_eq!(our_counters, their_counters, "{lines:?}: ours is left");
    assert_eq!(slow_requests(ours), slow_requests(theirs), "{lines:?}: ours is left");
}

#[test]
fn what_waited_counts_once_and_when_it_is_served() {
    let mut pair = Pair::start(2);
    for threshold in ["1000000", "0"] {
        let log = format!("CONFIG SET slowlog-log-slower-than {threshold}");
        for lines in [
            &["@send a BLPOP l 0", "@blocked 1", "LPUSH l x", "@receive a"][..],
            &["@send a XREAD BLOCK 0 STREAMS s $", "@blocked 1", "XADD s 1-1 x y", "@receive a"],
            &[
                "SET s 1",
                "@send a BLMOVE l s LEFT RIGHT 0",
                "@blocked 1",
                "LPUSH l x",
                "@receive a",
            ],
            &[
                "@send a BLMOVE l m LEFT RIGHT 0",
                "@blocked 1",
                "@send b BLPOP m 0",
                "@blocked 2",
                "LPUSH l x y",
                "@receive a",
                "@receive b",
            ],
            &[
                "XGROUP CREATE s g $ MKSTREAM",
                "@send a XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
                "@blocked 1",
                "DEL s",
                "@receive a",
            ],
            &["BLPOP l 0.01"],
            &["WAIT 1 10"],
            &["MULTI", "BLPOP l 0", "EXEC"],
        ] {
            compare(&mut pair, &[&[log.as_str()], lines].concat());
        }
    }
}

/// The slow log is left out: Redis notes what was ended there without its arguments.
#[test]
fn a_wait_that_is_ended_counts_as_failed() {
    let mut pair = Pair::start(2);
    for how in ["ERROR", "TIMEOUT"] {
        let unblock = format!("CLIENT UNBLOCK {{id:a}} {how}");
        compare(&mut pair, &["@send a BLPOP l 0", "@blocked 1", &unblock, "@receive a"]);
    }
}

#[test]
fn errors_that_scripts_return_are_counted() {
    let mut pair = Pair::start(2);
    for script in [
        "return redis.error_reply('MY e')",
        "return {err='MY e'}",
        "return {err='my'}",
        "return {err=''}",
        "return {err=' my'}",
        "return {err='A_VERY_LONG_WORD_THAT_CANNOT_BE_A_CODE e'}",
        "return {1,{err='MY e'},{{err='OTHER e'}}}",
        "return redis.pcall('lpush','a',1)",
        "return {redis.pcall('lpush','a',1), redis.pcall('get'), {err='MY e'}, {err='MY e'}}",
        "redis.pcall('lpush','a',1) return 1",
        "redis.call('lpush','a',1)",
        "return redis.pcall('nosuch')",
        "error('x')",
        "error({err='CODE x'})",
        "return nil+1",
        "return (",
        "return redis.call('set','a',1)",
    ] {
        let eval = format!("EVAL \"{script}\" 0");
        compare(&mut pair, &["SET a 1", &eval]);
        compare(&mut pair, &["SET a 1", "MULTI", &eval, "EXEC"]);
    }
    compare(&mut pair, &["EVALSHA ffffffffffffffffffffffffffffffffffffffff 0", "FCALL nosuch 0"]);
}

#[test]
fn the_slow_log_has_what_ran_and_nothing_else() {
    let mut pair = Pair::start(2);
    for lines in [
        &["MULTI", "SET a 1", "GET a", "LPUSH a 1", "EXEC"][..],
        &["EVAL \"redis.call('set','a',1) return redis.call('get','a')\" 0"],
        &["EVAL \"redis.pcall('get') return redis.pcall('lpush','a',1)\" 0"],
        &["MULTI", "EVAL \"return redis.call('get','a')\" 0", "EXEC"],
        &["GET", "NOSUCH", "AUTH x", "EXEC", "LPUSH k", "SET x", "CONFIG NOSUCH"],
        &["MULTI", "NOSUCH", "SET a 1", "EXEC"],
        &["SET k v EX 100", "INCRBYFLOAT n 1.5", "SADD s a b", "EXPIRE k 10", "GETDEL k"],
    ] {
        compare(&mut pair, &[&["CONFIG SET slowlog-log-slower-than 0"], lines].concat());
    }
}

/// Who asked, beside what: of the main connection only that it was this one.
fn slow_callers(connection: &mut Connection) -> Vec<String> {
    let port = connection.local_port().to_string();
    let Reply::Array(entries) = connection.words("SLOWLOG GET 1000") else { panic!("no list") };
    let caller = |entry: Reply| match entry {
        Reply::Array(fields) => {
            let client = text(fields[4].clone());
            let who = if client.ends_with(&port) { "main" } else { "" };
            let who = if client == "?:0" { "nobody" } else { who };
            format!("{:?} {who} {:?}", fields[3], fields[5])
        }
        other => panic!("{other:?} is no entry"),
    };
    let is_own = |line: &String| ["INFO", "RESETSTAT"].iter().any(|own| line.contains(own));
    entries.into_iter().map(caller).filter(|line| !is_own(line)).collect()
}

#[test]
fn the_slow_log_names_who_asked_and_has_nothing_of_who_was_unblocked() {
    let mut pair = Pair::start(2);
    for lines in [
        &["CLIENT SETNAME ada", "EVAL \"redis.call('set','a',1) return redis.call('get','a')\" 0"]
            [..],
        &["@send b BLPOP l 0", "@blocked 1", "CLIENT UNBLOCK {id:b} ERROR", "@receive b"],
        &[
            "@send b BLPOP l 0",
            "@blocked 1",
            "MULTI",
            "CLIENT UNBLOCK {id:b}",
            "CLIENT UNBLOCK {id:b}",
            "SET a 1",
            "EXEC",
            "@receive b",
        ],
    ] {
        // Connection b is opened before it waits.
        let begin = ["@on b PING", "CONFIG SET slowlog-log-slower-than 0", "SLOWLOG RESET"];
        run(&mut pair, &[&begin[..], lines].concat());
        let (ours, theirs) = pair.connection("main");
        assert_eq!(shown(slow_callers(ours)), shown(slow_callers(theirs)), "{lines:?}");
    }
}

/// Without what polls, and without the numbers of connections.
fn shown(mut lines: Vec<String>) -> Vec<String> {
    lines.retain(|line| !line.contains("\"LIST\"") && !line.contains("\"ID\""));
    lines.iter_mut().filter(|line| line.contains("UNBLOCK")).for_each(|line| {
        *line = line.chars().filter(|c| !c.is_ascii_digit()).collect();
    });
    lines
}

#[test]
fn a_refusal_at_the_end_of_a_transaction_is_a_failure_of_exec() {
    let mut pair = Pair::start(2);
    for lines in [
        &["@on a MULTI", "@on a AUTH u p", "@on a GET a", "@on a GET b", "@on a EXEC"][..],
        &["@on a MULTI", "@on a AUTH u p", "@on a GET b", "@on a GET a", "@on a EXEC"],
    ] {
        let user = "ACL SETUSER u on >p ~a +@all";
        compare(&mut pair, &[&[user], lines, &["@on a AUTH u p", "ACL DELUSER u"]].concat());
    }
}

#[test]
fn what_waits_of_a_client_is_counted_in_its_line() {
    let mut pair = Pair::start(2);
    for lines in [
        &["@send b BLPOP some other 0", "@blocked 1"][..],
        &["CLIENT PAUSE 100000 WRITE", "@send b SET key value", "@blocked 1"],
        &["@on b MULTI", "@on b SET key value", "@on b GET key"],
        &["@on b WATCH key", "@on b MULTI", "@on b GET key", "SET key 1", "@on b GET key"],
    ] {
        run(&mut pair, &[&["@on b CLIENT SETNAME bob"], lines].concat());
        let (ours, theirs) = pair.connection("main");
        assert_eq!(held(ours), held(theirs), "{lines:?}");
        run_on(&mut pair, &["CLIENT UNPAUSE"]);
    }
}

/// What a client called bob holds of requests.
fn held(connection: &mut Connection) -> Vec<String> {
    let list = text(connection.words("CLIENT LIST"));
    let line = list.lines().find(|line| line.contains(" name=bob ")).expect("bob is there");
    let names = ["flags", "multi", "qbuf", "argv-mem", "multi-mem", "obl", "oll", "omem"];
    let is_named = |field: &&str| names.contains(&field.split('=').next().unwrap_or_default());
    line.split(' ').filter(is_named).map(str::to_owned).collect()
}

#[test]
fn percentiles_are_named_without_zeros_at_the_end() {
    let mut pair = Pair::start(2);
    let set = "CONFIG SET latency-tracking-info-percentiles";
    compare(&mut pair, &[&format!("{set} \"50.0 99 12.3456789\""), "GET a"]);
}

#[test]
fn the_command_that_was_slow_is_noted_and_not_its_exec() {
    let server = Server::builder().setting("enable-debug-command", "yes").start().unwrap();
    let mut connection = Connection::unix(server.connect().unwrap());
    connection.words("CONFIG SET slowlog-log-slower-than 400000");
    for line in ["MULTI", "SET a 1", "DEBUG SLEEP 0.5", "GET a", "EXEC"] {
        connection.words(line);
    }
    let slow = slow_requests(&mut connection).join(" ");
    assert!(slow.contains("DEBUG") && !slow.contains("EXEC"), "{slow}");
}

/// A key that has ended and was not removed yet counts as none for whoever watches it, and stays.
#[test]
fn databases_that_change_places_leave_ended_keys_where_they_are() {
    const ENDED: &str = "SET key value PX 1";
    const LIVE: &str = "SET key value";
    let mut pair = Pair::start(2);
    run_on(&mut pair, &["DEBUG SET-ACTIVE-EXPIRE 0"]);
    for here in [None, Some(ENDED), Some(LIVE)] {
        for there in [None, Some(ENDED), Some(LIVE)] {
            for again in [&[][..], &["SWAPDB 0 1"]] {
                let mut lines = vec!["FLUSHALL", "SELECT 1"];
                lines.extend(there);
                lines.push("SELECT 0");
                lines.extend(here);
                lines.extend(["DEBUG SLEEP 0.01", "@on b WATCH key", "SWAPDB 0 1"]);
                lines.extend(again);
                lines.extend(["@on b MULTI", "@on b PING", "@on b EXEC", "DBSIZE", "EXISTS key"]);
                compare(&mut pair, &lines);
            }
        }
    }
}
