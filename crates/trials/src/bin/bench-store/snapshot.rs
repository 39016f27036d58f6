//! A snapshot of very many keys and two large values while everything is overwritten.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::RedisServer;
use trials::clock;

use crate::append::slower_max;
use crate::report::Figures;
use crate::servers::{Expiry, PerSide, Side, info, insert, resident_bytes, start_with};
use crate::{Result, Scale};

const TURN_MS_MAX: f64 = 5.0;
const MEMORY_PERCENT_MAX: f64 = 10.0;
/// How often the second connection asks.
const PAUSE: Duration = Duration::from_micros(500);
/// Members added by one request.
const CHUNK: usize = 500;

/// What a snapshot did to one server.
#[derive(Default)]
struct Seen {
    turn_ms: f64,
    wait_ms: f64,
    wait_p999_ms: f64,
    seconds: f64,
    memory_percent: f64,
    load_seconds: f64,
}

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    let seen = PerSide::measure(|side| measure_side(side, scale))?;
    let (ours, theirs) = (seen.ours, seen.theirs);
    let what = format!(
        "BGSAVE of {} keys, a sorted set and a list of {} under writes: longest turn, CPU time",
        scale.snapshot_keys, scale.snapshot_members
    );
    figures.must(&what, (ours.turn_ms, "ms"), "not told".to_owned(), TURN_MS_MAX);
    for (what, unit, of) in [
        ("longest wait of a second connection", "ms", (|seen| seen.wait_ms) as fn(&Seen) -> f64),
        ("its p99.9", "ms", |seen| seen.wait_p999_ms),
        ("time until the file is there", "s", |seen| seen.seconds),
    ] {
        let figure = |seen| format!("{:.2} {unit}", of(seen));
        figures.note(&format!("the same: {what}"), figure(&ours), figure(&theirs));
    }
    let (load, their_load) = (ours.load_seconds, theirs.load_seconds);
    let what = "the same: loading that file into an empty server";
    figures.must(what, (load, "s"), format!("{their_load:.2} s"), slower_max(their_load));
    let what = "the same: extra memory while all keys are overwritten";
    let theirs = format!("{:.1} %", theirs.memory_percent);
    figures.must(what, (ours.memory_percent, "%"), theirs, MEMORY_PERCENT_MAX);
    Ok(())
}

fn measure_side(side: Side, scale: &Scale) -> Result<Seen> {
    let server = start_with(side, &[])?;
    insert(&server, 0..scale.snapshot_keys, Expiry::Never)?;
    add_large(&server, scale.snapshot_members)?;
    let resident_before = resident_bytes(&server)?;
    server.cli(&["CONFIG", "RESETSTAT"]);
    let mut seen = watch_snapshot(&server, scale, resident_before)?;
    if side == Side::Ours {
        seen.turn_ms = info(&server, "stats", "tenure_longest_turn_usec")? / 1e3;
    } else {
        // Copies are made in the child's time, page by page; the server counts them.
        seen.memory_percent =
            info(&server, "persistence", "rdb_last_cow_size")? / resident_before * 100.0;
    }
    let loads = (0..scale.loads).map(|_| load_seconds(side, &server));
    let loads = loads.collect::<Result<Vec<f64>>>()?;
    seen.load_seconds = loads.into_iter().fold(f64::MAX, f64::min);
    Ok(seen)
}

/// How long another server of the same kind takes to load the file of this one.
fn load_seconds(side: Side, server: &RedisServer) -> Result<f64> {
    let folder = server.folder().to_string_lossy().into_owned();
    let allowed = ["--enable-debug-command", "yes", "--enable-protected-configs", "yes"];
    let loading = start_with(side, &allowed)?;
    // Only now, so that the start itself loads nothing and there is nothing to empty.
    loading.cli(&["CONFIG", "SET", "dir", &folder]);
    let started_at = clock::now();
    let loaded = loading.cli(&["DEBUG", "RELOAD", "NOSAVE"]);
    if loaded != "OK" {
        return Err(format!("loading: {loaded}").into());
    }
    Ok(clock::now().since(started_at).as_secs_f64())
}

fn add_large(server: &RedisServer, members: usize) -> Result {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    stream.set_nodelay(true)?;
    for first in (0..members).step_by(CHUNK) {
        let numbers = first..members.min(first + CHUNK);
        let mut zset = vec!["ZADD".to_owned(), "large:zset".to_owned()];
        let mut list = vec!["RPUSH".to_owned(), "large:list".to_owned()];
        for number in numbers {
            zset.extend([number.to_string(), format!("member:{number:08}")]);
            list.push(format!("element:{number:08}"));
        }
        ask(&mut stream, &zset)?;
        ask(&mut stream, &list)?;
    }
    Ok(())
}

/// Sends one request and reads its one-line reply.
fn ask(stream: &mut TcpStream, words: &[String]) -> Result {
    let mut request = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        write!(request, "${}\r\n{word}\r\n", word.len())?;
    }
    stream.write_all(&request)?;
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        match byte[0] {
            b'-' => return Err(format!("{}: refused", words[0]).into()),
            b'\n' => return Ok(()),
            _ => {}
        }
    }
}

fn watch_snapshot(server: &RedisServer, scale: &Scale, resident_before: f64) -> Result<Seen> {
    let done = AtomicBool::new(false);
    let started_at = clock::now();
    let replied = server.cli(&["BGSAVE"]);
    if !replied.starts_with("Background saving started") {
        return Err(format!("BGSAVE: {replied}").into());
    }
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| waits(server.port(), &done));
        let writer = scope.spawn(|| overwrite(server, scale, &done));
        let mut resident_max = resident_before;
        let saved = loop {
            std::thread::sleep(Duration::from_millis(20));
            resident_max = resident_max.max(resident_bytes(server)?);
            if info(server, "persistence", "rdb_bgsave_in_progress")? == 0.0 {
                break clock::now().since(started_at).as_secs_f64();
            }
        };
        done.store(true, Ordering::Relaxed);
        let mut waits = asker.join().expect("the asker does not panic")?;
        writer.join().expect("the writer does not panic").map_err(|error| error.to_string())?;
        waits.sort_unstable();
        let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64();
        Ok(Seen {
            wait_ms: at(1.0) * 1e3,
            wait_p999_ms: at(0.999) * 1e3,
            seconds: saved,
            memory_percent: (resident_max - resident_before) / resident_before * 100.0,
            ..Seen::default()
        })
    })
}

/// Overwrites all keys, with changes to the large values in between, until the snapshot is done.
fn overwrite(
    server: &RedisServer,
    scale: &Scale,
    done: &AtomicBool,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    const STEP: usize = 1000;
    let told = |error: Box<dyn std::error::Error>| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    stream.set_nodelay(true)?;
    // From the far end, so that the walk does not go ahead of the writes.
    for first in (0..scale.snapshot_keys).step_by(STEP).rev().cycle() {
        if done.load(Ordering::Relaxed) {
            return Ok(());
        }
        insert(server, first..first + STEP, Expiry::Never).map_err(told)?;
        let number = first * 7 % scale.snapshot_members;
        let text = |words: [&str; 4]| words.map(str::to_owned);
        let member = format!("member:{number:08}");
        ask(&mut stream, &text(["ZADD", "large:zset", "1.5", &member])).map_err(told)?;
        let index = number.to_string();
        ask(&mut stream, &text(["LSET", "large:list", &index, "changed"])).map_err(told)?;
    }
    Ok(())
}

fn waits(port: u16, done: &AtomicBool) -> std::io::Result<Vec<Duration>> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_nodelay(true)?;
    let mut waits = Vec::new();
    let mut reply = [0; b"+PONG\r\n".len()];
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        let asked_at = clock::now();
        connection.write_all(b"PING\r\n")?;
        connection.read_exact(&mut reply)?;
        waits.push(clock::now().since(asked_at));
    }
    Ok(waits)
}
