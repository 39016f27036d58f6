//! What the server says it uses, beside what the allocator of this program was really asked for.
//!
//! The server lives in this process, so the tests keep what they hold themselves small, and each
//! of them has a process to itself, as nextest gives it.
#![allow(unsafe_code, reason = "an allocator is unsafe by its nature")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use store_server::Server;
use testkit::{GENEROUS, wait_until};

struct Counting;

static ALLOCATED: AtomicI64 = AtomicI64::new(0);

fn grow(bytes: i64) {
    let allocated = ALLOCATED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(allocated, Ordering::Relaxed);
}

// SAFETY: all is passed on to the system's allocator; only sizes are added up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size() as i64);
        // SAFETY: what the caller promises holds for this call, too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // A large one may be there twice for a moment.
        grow(size as i64);
        grow(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: i64 = 1 << 20;
const CHUNK: [u8; 4096] = [b'x'; 4096];

/// Whether this process runs one test alone. Without it there is nothing to measure.
fn is_alone() -> bool {
    let is_alone = std::env::var_os("NEXTEST").is_some();
    if !is_alone {
        println!("not measured: needs a process to itself, run it with cargo nextest");
    }
    is_alone
}

struct World {
    server: Server,
    asker: UnixStream,
    used_before: i64,
    allocated_before: i64,
}

impl World {
    fn start(settings: &[(&str, &str)]) -> Self {
        let mut builder = Server::builder();
        for (name, value) in settings {
            builder = builder.setting(name, value);
        }
        let server = builder.start().unwrap();
        let asker = server.connect().unwrap();
        let mut world = Self { server, asker, used_before: 0, allocated_before: 0 };
        world.used();
        world.used_before = world.used();
        world.allocated_before = ALLOCATED.load(Ordering::Relaxed);
        world
    }

    fn connect(&self) -> UnixStream {
        self.server.connect().unwrap()
    }

    /// Sends a request on the connection that is always read from, and waits for a short answer.
    fn ask(&mut self, request: &[u8]) {
        self.asker.write_all(request).unwrap();
        let mut reply = [0; 64];
        assert!(self.asker.read(&mut reply).unwrap() > 0);
    }

    fn used(&mut self) -> i64 {
        self.asker.write_all(b"INFO memory\r\n").unwrap();
        let mut text = [0; 8192];
        let mut len = 0;
        while !text[..len].ends_with(b"\r\n\r\n") || len < 100 {
            let count = self.asker.read(&mut text[len..]).unwrap();
            len += count;
            if text[..len].windows(18).any(|it| it == b"lazyfreed_objects:") {
                break;
            }
        }
        let text = std::str::from_utf8(&text[..len]).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.trim().parse().unwrap()
    }

    /// Both have grown by about as much, and by no less than `least`.
    #[track_caller]
    fn agrees(&mut self, least: i64) {
        let place = std::panic::Location::caller();
        let mut seen = (0, 0);
        const PAUSE: Duration = Duration::from_millis(20);
        for _ in 0..GENEROUS.as_millis() / PAUSE.as_millis() {
            let used = self.used() - self.used_before;
            let allocated = ALLOCATED.load(Ordering::Relaxed) - self.allocated_before;
            seen = (used, allocated);
            if allocated >= least && (used - allocated).abs() * 10 <= allocated {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("{place}: used_memory grew by {}, the allocator by {}", seen.0, seen.1);
    }
}

fn header(words: &[&str], last_len: usize) -> Vec<u8> {
    let mut request = format!("*{}\r\n", words.len() + 1).into_bytes();
    for word in words {
        request.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    request.extend(format!("${last_len}\r\n").into_bytes());
    request
}

/// The most that was allocated at once since it was last set.
static PEAK: AtomicI64 = AtomicI64::new(0);

/// Sends a string of `len` bytes as the last word of a request, and waits for the answer.
fn send_large(stream: &mut UnixStream, words: &[&str], len: usize) {
    stream.write_all(&header(words, len)).unwrap();
    for start in (0..len).step_by(CHUNK.len()) {
        stream.write_all(&CHUNK[..CHUNK.len().min(len - start)]).unwrap();
    }
    stream.write_all(b"\r\n").unwrap();
    let mut reply = [0; 64];
    assert!(stream.read(&mut reply).unwrap() > 0);
}

/// What is read becomes the value: at no time is it there twice, and what edits it does not
/// double it.
#[test]
fn a_large_value_is_in_memory_once() {
    if !is_alone() {
        return;
    }
    const LEN: i64 = 64 * MIB;
    let requests: &[&[&str]] =
        &[&["SET", "a"], &["SETEX", "b", "100"], &["MSET", "c", "1", "d"], &["GETSET", "e"]];
    for words in requests {
        let mut world = World::start(&[]);
        let mut stream = world.connect();
        let before = ALLOCATED.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        send_large(&mut stream, words, LEN as usize);
        let peak = PEAK.load(Ordering::Relaxed) - before;
        assert!(peak < LEN / 10 * 12, "{words:?}: {} MiB", peak / MIB);
        world.agrees(LEN / 10 * 9);
    }
    let mut world = World::start(&[]);
    send_large(&mut world.asker, &["SET", "a"], LEN as usize);
    PEAK.store(ALLOCATED.load(Ordering::Relaxed), Ordering::Relaxed);
    for request in ["APPEND a x", "SETRANGE a 5 y", "BITCOUNT a", "GETRANGE a 67108862 -1"] {
        world.ask(format!("{request}\r\n").as_bytes());
    }
    let peak = PEAK.load(Ordering::Relaxed) - world.allocated_before;
    assert!(peak < LEN / 10 * 12, "{} MiB", peak / MIB);
}

/// What loading takes at most, in tenths of the value's length. Half of the value is noise.
#[test]
fn a_large_value_is_loaded_without_a_second_copy() {
    if !is_alone() {
        return;
    }
    const LEN: usize = 16 * MIB as usize;
    // Half of it compressed is there beside the whole for a while, as in Redis.
    for (compression, tenths_max) in [("no", 13), ("yes", 18)] {
        let folder = testkit::TempFolder::create();
        let folder = folder.path().to_str().unwrap();
        let settings = [("dir", folder), ("rdbcompression", compression), ("save", "3600 1000000")];
        let mut world = World::start(&settings);
        world.asker.write_all(&header(&["SET", "a"], LEN)).unwrap();
        let mut state = 1;
        for number in 0..LEN / CHUNK.len() {
            let chunk = if number % 2 == 0 { noise(&mut state) } else { CHUNK };
            world.asker.write_all(&chunk).unwrap();
        }
        world.ask(b"\r\n");
        world.ask(b"SAVE\r\n");
        drop(world);
        let before = ALLOCATED.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let mut world = World::start(&settings);
        let peak = PEAK.load(Ordering::Relaxed) - before;
        world.ask(b"GETRANGE a 0 5\r\n");
        assert!(world.used() >= LEN as i64, "it was not loaded");
        assert!(peak * 10 <= LEN as i64 * tenths_max, "{compression}: {} MiB", peak / MIB);
    }
}

/// Bytes in which nothing repeats.
fn noise(state: &mut u64) -> [u8; CHUNK.len()] {
    std::array::from_fn(|_| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 56) as u8
    })
}

#[test]
fn keys_and_values_of_all_sizes_are_counted() {
    if !is_alone() {
        return;
    }
    for len in [200, 3000, 40_000, 700_000] {
        let mut world = World::start(&[]);
        let value = vec![b'x'; len];
        for number in 0..70 * MIB as usize / len {
            let mut request = header(&["SET", &format!("key:{number}")], len);
            request.extend(&value);
            request.extend(b"\r\n");
            world.asker.write_all(&request).unwrap();
            if number % 100 == 99 {
                world.asker.read_exact(&mut [0; 500]).unwrap();
            }
        }
        let unread = 70 * MIB as usize / len % 100;
        world.asker.read_exact(&mut vec![0; 5 * unread]).unwrap();
        world.agrees(64 * MIB);
    }
}

#[test]
fn a_request_that_is_half_here_is_counted() {
    if !is_alone() {
        return;
    }
    let mut world = World::start(&[]);
    let mut half = world.connect();
    half.write_all(&header(&["SET", "key"], 100 * MIB as usize)).unwrap();
    (0..90 * 256).for_each(|_| half.write_all(&CHUNK).unwrap());
    world.agrees(80 * MIB);
    drop(half);
    wait_until("it is given back", GENEROUS, || world.used() - world.used_before < MIB);
}

#[test]
fn replies_that_nobody_reads_are_counted_and_waste_nothing() {
    if !is_alone() {
        return;
    }
    let mut world = World::start(&[]);
    let mut request = header(&["SET", "key"], 10_000);
    request.extend([b'x'; 10_000]);
    world.ask(&[&request[..], b"\r\n"].concat());
    let mut slow: Vec<UnixStream> = (0..10).map(|_| world.connect()).collect();
    for stream in &mut slow {
        (0..1000).for_each(|_| stream.write_all(b"GET key\r\n").unwrap());
    }
    // Ten times ten megabytes, less what the sockets hold, and nothing beyond that.
    world.agrees(90 * MIB);
    let grown = ALLOCATED.load(Ordering::Relaxed) - world.allocated_before;
    assert!(grown < 110 * MIB, "{} MiB for 100", grown / MIB);
}

#[test]
fn messages_that_nobody_reads_are_counted_once() {
    if !is_alone() {
        return;
    }
    let settings = [("client-output-buffer-limit", "pubsub 0 0 0")];
    let mut world = World::start(&settings);
    let mut slow: Vec<UnixStream> = (0..10).map(|_| world.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"SUBSCRIBE news\r\n").unwrap();
        assert!(stream.read(&mut [0; 64]).unwrap() > 0);
    }
    let len = MIB as usize;
    for _ in 0..80 {
        let mut request = header(&["PUBLISH", "news"], len);
        (0..len / CHUNK.len()).for_each(|_| request.extend(CHUNK));
        request.extend(b"\r\n");
        world.ask(&request);
    }
    world.agrees(70 * MIB);
}

#[test]
fn a_value_that_only_slow_readers_hold_is_counted() {
    if !is_alone() {
        return;
    }
    let mut world = World::start(&[]);
    let len = 100 * MIB as usize;
    world.asker.write_all(&header(&["SET", "key"], len)).unwrap();
    for _ in 0..len / CHUNK.len() {
        world.asker.write_all(&CHUNK).unwrap();
    }
    world.ask(b"\r\n");
    world.agrees(90 * MIB);
    let mut slow: Vec<UnixStream> = (0..10).map(|_| world.connect()).collect();
    slow.iter_mut().for_each(|stream| stream.write_all(b"GET key\r\n").unwrap());
    // Each has begun to read, so each was served.
    slow.iter_mut().for_each(|stream| assert!(stream.read(&mut [0; 64]).unwrap() > 0));
    world.agrees(90 * MIB);
    let grown = ALLOCATED.load(Ordering::Relaxed) - world.allocated_before;
    assert!(grown < 130 * MIB, "{} MiB for one value", grown / MIB);
    world.ask(b"DEL key\r\n");
    world.agrees(90 * MIB);
    drop(slow);
    wait_until("it is given back", GENEROUS, || world.used() - world.used_before < MIB);
}

#[test]
fn tracked_keys_are_counted() {
    if !is_alone() {
        return;
    }
    let mut world = World::start(&[("tracking-table-max-keys", "0")]);
    let mut tracking = world.connect();
    tracking.write_all(b"CLIENT TRACKING on REDIRECT 1\r\n").unwrap();
    assert!(tracking.read(&mut [0; 64]).unwrap() > 0);
    for number in 0..250_000 {
        tracking.write_all(format!("GET key:{number}\r\n").as_bytes()).unwrap();
        if number % 100 == 99 {
            let mut replies = [0; 500];
            tracking.read_exact(&mut replies).unwrap();
        }
    }
    world.agrees(64 * MIB);
}

/// Sends a script, and waits until it is answered or the connection is closed. Answers how much
/// memory was in use meanwhile.
fn peak_of_script(stream: &mut UnixStream, code: &str) -> i64 {
    let before = ALLOCATED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let request = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{code}\r\n$1\r\n0\r\n", code.len());
    stream.write_all(request.as_bytes()).unwrap();
    stream.write_all(b"ECHO over\r\n").unwrap();
    wait_for_end(stream, b"over");
    PEAK.load(Ordering::Relaxed) - before
}

/// Reads until this word has come or the connection is closed.
fn wait_for_end(stream: &mut UnixStream, word: &[u8]) {
    let (mut buffer, mut kept) = ([0; 65_536], Vec::new());
    loop {
        let count = stream.read(&mut buffer).unwrap_or(0);
        kept.extend_from_slice(&buffer[..count]);
        if count == 0 || kept.windows(word.len()).any(|it| it == word) {
            return;
        }
        // A word may come in two parts.
        kept.drain(..kept.len().saturating_sub(word.len()));
    }
}

/// Sends each line, and waits for something in return.
fn prepare(stream: &mut UnixStream, lines: &[&str]) {
    for line in lines {
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    }
}

const LIMITED: [(&str, &str); 2] =
    [("notify-keyspace-events", "KEA"), ("client-output-buffer-limit", "pubsub 4mb 0 0")];
const PUBLISHES: &str = "local text = string.rep('x', 100000)
    for i = 1, 1000 do redis.call('publish', 'c', text) end return 1";
const SETS: &str = "local key = string.rep('k', 100000)
    for i = 1, 1000 do redis.call('set', key, i) end return 1";
const SETS_OTHER_KEYS: &str = "for i = 1, 1000 do
    local key = string.rep('k', 100000) .. i
    redis.call('set', key, i) redis.call('del', key) end return 1";

#[test]
fn what_a_script_tells_its_own_session_is_bounded_while_it_runs() {
    if !is_alone() {
        return;
    }
    let cases: [(&[&str], &str, i64); 6] = [
        (&["HELLO 3", "SUBSCRIBE c"], PUBLISHES, 20),
        (&["HELLO 3", "PSUBSCRIBE __key*"], SETS, 20),
        (&["HELLO 3", "CLIENT TRACKING on BCAST"], SETS, 4),
        (&["HELLO 3", "CLIENT TRACKING on BCAST PREFIX other"], SETS_OTHER_KEYS, 4),
        // Those that changed wait for the end of the turn, up to a limit of their own.
        (&["HELLO 3", "CLIENT TRACKING on BCAST"], SETS_OTHER_KEYS, 40),
        (&["HELLO 3", "CLIENT TRACKING on"], SETS, 4),
    ];
    for (lines, code, mib_max) in cases {
        let world = World::start(&LIMITED);
        let mut stream = world.connect();
        prepare(&mut stream, lines);
        let peak = peak_of_script(&mut stream, code);
        assert!(peak < mib_max * MIB, "{lines:?}: {} MiB", peak / MIB);
    }
    let world = World::start(&LIMITED);
    let mut mute = world.connect();
    prepare(&mut mute, &["HELLO 3", "SUBSCRIBE c"]);
    mute.write_all(b"CLIENT REPLY OFF\r\n").unwrap();
    let peak = peak_of_script(&mut mute, PUBLISHES);
    assert!(peak < 20 * MIB, "without replies: {} MiB", peak / MIB);
}

#[test]
fn what_a_script_tells_others_is_bounded_while_it_runs() {
    if !is_alone() {
        return;
    }
    let cases: [(&[&str], &str); 4] = [
        (&["HELLO 3", "SUBSCRIBE c"], PUBLISHES),
        (&["HELLO 3", "PSUBSCRIBE __key*"], SETS),
        (&["HELLO 3", "CLIENT TRACKING on", "GET other"], SETS),
        (&["HELLO 3", "CLIENT TRACKING on BCAST"], SETS),
    ];
    for (lines, code) in cases {
        let mut world = World::start(&LIMITED);
        let mut other = world.connect();
        prepare(&mut other, lines);
        let peak = peak_of_script(&mut world.asker, code);
        assert!(peak < 20 * MIB, "{lines:?}: {} MiB", peak / MIB);
    }
}

#[test]
fn what_a_transaction_tells_its_own_session_is_bounded() {
    if !is_alone() {
        return;
    }
    let world = World::start(&LIMITED);
    let mut stream = world.connect();
    prepare(&mut stream, &["HELLO 3", "SUBSCRIBE c", "MULTI"]);
    const LEN: usize = 20_000;
    let before = ALLOCATED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    for _ in 0..1000 {
        stream.write_all(&header(&["PUBLISH", "c"], LEN)).unwrap();
        stream.write_all(&vec![b'x'; LEN]).unwrap();
        stream.write_all(b"\r\n").unwrap();
        stream.read_exact(&mut [0; "+QUEUED\r\n".len()]).unwrap();
    }
    let queued = PEAK.load(Ordering::Relaxed) - before;
    stream.write_all(b"EXEC\r\n").unwrap();
    wait_for_end(&mut stream, b"never");
    let peak = PEAK.load(Ordering::Relaxed) - before;
    assert!(peak - queued < 16 * MIB, "{} MiB beside {} MiB", (peak - queued) / MIB, queued / MIB);
}

/// Who watches or waits for a key is told once, however often a script changes it.
#[test]
fn a_key_that_a_script_changes_often_is_remembered_once() {
    if !is_alone() {
        return;
    }
    let mut world = World::start(&[]);
    let mut watching: Vec<UnixStream> = (0..50).map(|_| world.connect()).collect();
    watching.iter_mut().for_each(|stream| prepare(stream, &["WATCH k"]));
    let code = "for i = 1, 20000 do redis.call('set', 'k', i) end return 1";
    let peak = peak_of_script(&mut world.asker, code);
    assert!(peak < 4 * MIB, "watched: {} MiB", peak / MIB);
    for stream in &mut watching {
        stream.write_all(b"MULTI\r\nPING\r\nEXEC\r\n").unwrap();
        wait_for_end(stream, b"*-1\r\n");
    }

    let mut waiting = world.connect();
    let key = "l".repeat(1000);
    waiting.write_all(format!("BLPOP {key} 0\r\n").as_bytes()).unwrap();
    let waits = "return redis.call('info', 'clients'):match('blocked_clients:(%d+)')";
    let request = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{waits}\r\n$1\r\n0\r\n", waits.len());
    wait_until("it waits", GENEROUS, || {
        let mut reply = [0; 7];
        world.asker.write_all(request.as_bytes()).unwrap();
        world.asker.read_exact(&mut reply).unwrap();
        reply == *b"$1\r\n1\r\n"
    });
    let code = "local key = string.rep('l', 1000) for i = 1, 20000 do
        redis.call('rpush', key, i) redis.call('lpop', key) end
        redis.call('rpush', key, 'last') return 1";
    let peak = peak_of_script(&mut world.asker, code);
    assert!(peak < 4 * MIB, "waited for: {} MiB", peak / MIB);
    wait_for_end(&mut waiting, b"last");
}

#[test]
fn what_a_script_unlinks_does_not_wait_for_its_end_without_bound() {
    if !is_alone() {
        return;
    }
    let mut world = World::start(&[]);
    let code = "for i = 1, 300 do
        redis.call('setrange', 'k', 999999, 'x') redis.call('unlink', 'k') end return 1";
    let peak = peak_of_script(&mut world.asker, code);
    assert!(peak < 60 * MIB, "{} MiB", peak / MIB);
}
