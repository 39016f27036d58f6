//! What the process takes while data comes and goes, beside redis-server: after each phase no more
//! than 1.3 times as much, and soon after it little more than what is in use.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use testkit::RedisServer;

use crate::report::Figures;
use crate::servers::{PerSide, SIDES, Side, info, resident_bytes, start_with};
use crate::stall::longest_wait_ms_during;
use crate::{Result, Scale};

const MB: f64 = 1_000_000.0;
/// By how much we may exceed redis-server.
const RATIO_MAX: f64 = 1.3;
/// What a process may take beyond 1.3 times what is in use, once it has had time to shrink.
const SLACK: f64 = 32.0 * 1024.0 * 1024.0;
const SHRINKS_WITHIN: Duration = Duration::from_secs(5);
/// As much as redis-server can copy for each reader on a machine that others use, too.
const SHARED_LEN: usize = 64 * 1024 * 1024;
const READERS: usize = 20;
const LARGEST_LEN: usize = 512 * 1024 * 1024;
/// The least of so many rounds counts.
const STALL_ROUNDS: usize = 3;

/// Resident bytes after each phase, by its name, and how they stood when it had time to shrink.
#[derive(Default)]
struct Footprint {
    phases: Vec<(String, f64)>,
    /// What the process takes beyond the bound, 0 when it keeps to it.
    excess: Vec<(String, f64)>,
}

type Run = fn(Side, &mut Footprint) -> Result;

pub(crate) fn measure(_: &Scale, figures: &mut Figures) -> Result {
    let runs: [Run; 4] = [fill_and_flush, flush_loop, shifting_sizes, slow_readers];
    for run in runs {
        let footprints = PerSide::measure(|side| {
            let mut footprint = Footprint::default();
            run(side, &mut footprint).map(|()| footprint)
        })?;
        footprints.report(figures);
    }
    stalls(figures)
}

impl PerSide<Footprint> {
    fn report(&self, figures: &mut Figures) {
        for ((phase, ours), (_, theirs)) in self.ours.phases.iter().zip(&self.theirs.phases) {
            let what = format!("resident after {phase}");
            let theirs_mb = theirs / MB;
            let limit = (theirs_mb * RATIO_MAX).round();
            figures.must(&what, (ours / MB, "MB"), format!("{theirs_mb:.2} MB"), limit);
        }
        for ((phase, ours), (_, theirs)) in self.ours.excess.iter().zip(&self.theirs.excess) {
            let what = format!("5 s after {phase}: beyond 1.3 × used_memory + 32 MiB");
            figures.must(&what, (ours / MB, "MB"), format!("{:.2} MB", theirs / MB), 0.0);
        }
    }
}

impl Footprint {
    fn note(&mut self, phase: &str, server: &RedisServer) -> Result {
        self.phases.push((phase.to_owned(), resident_bytes(server)?));
        Ok(())
    }

    /// Gives the process its time to shrink, and notes what it takes too much then.
    fn note_shrunk(&mut self, phase: &str, server: &RedisServer) -> Result {
        // What waits to be freed is in use still, so looking earlier would show nothing.
        std::thread::sleep(SHRINKS_WITHIN);
        let bound = info(server, "memory", "used_memory")? * 1.3 + SLACK;
        self.excess.push((phase.to_owned(), (resident_bytes(server)? - bound).max(0.0)));
        self.note(&format!("{phase} and 5 s"), server)
    }
}

fn fill_and_flush(side: Side, footprint: &mut Footprint) -> Result {
    let server = start_with(side, &[])?;
    let mut client = connect(&server)?;
    fill(&mut client, 1_000_000, 150)?;
    footprint.note("1,000,000 keys of 150 bytes", &server)?;
    expect(&mut client, b"FLUSHALL\r\n", b"+OK\r\n")?;
    footprint.note_shrunk("FLUSHALL", &server)
}

fn flush_loop(side: Side, footprint: &mut Footprint) -> Result {
    let server = start_with(side, &["--maxmemory", "64mb"])?;
    let mut client = connect(&server)?;
    for _ in 0..20 {
        fill(&mut client, 50_000, 400)?;
        expect(&mut client, b"FLUSHALL\r\n", b"+OK\r\n")?;
    }
    fill(&mut client, 50_000, 400)?;
    footprint.note("20 rounds of 50,000 keys and FLUSHALL, filled again", &server)?;
    expect(&mut client, b"FLUSHALL\r\n", b"+OK\r\n")?;
    footprint.note_shrunk("the last FLUSHALL", &server)
}

fn shifting_sizes(side: Side, footprint: &mut Footprint) -> Result {
    let settings = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = start_with(side, &settings)?;
    let mut client = connect(&server)?;
    for len in [150, 1000, 10_000, 100_000, 700_000, 150] {
        fill(&mut client, 250_000_000 / len, len)?;
        footprint.note(&format!("250 MB of {len}-byte values, maxmemory 100mb"), &server)?;
    }
    footprint.note_shrunk("the sizes have shifted", &server)
}

fn slow_readers(side: Side, footprint: &mut Footprint) -> Result {
    let server = start_with(side, &[])?;
    let mut client = connect(&server)?;
    send_large(&mut client, "SET", SHARED_LEN)?;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut reader = connect(&server)?;
        reader.write_all(b"GET large\r\n")?;
        reader.read_exact(&mut [0; 64])?;
        readers.push(reader);
    }
    footprint.note("20 slow readers of 64 MiB", &server)?;
    expect(&mut client, b"DEL large\r\n", b":1\r\n")?;
    footprint.note("the same, the value removed", &server)?;
    drop(readers);
    footprint.note_shrunk("the readers have gone", &server)
}

/// How long others wait at most while a value of 512 MiB comes, goes out, and is worked on.
fn stalls(figures: &mut Figures) -> Result {
    let mut least = PerSide::<Vec<f64>>::default();
    for _ in 0..STALL_ROUNDS {
        for side in SIDES {
            let waits = stalls_of(side)?;
            let least = least.side_mut(side);
            least.resize(waits.len(), f64::INFINITY);
            least.iter_mut().zip(waits).for_each(|(least, wait)| *least = least.min(wait));
        }
    }
    let whats = ["SET of 512 MiB", "GET of 512 MiB", "APPEND, SETRANGE, GETRANGE, BITCOUNT on it"];
    for (what, (ours, theirs)) in whats.iter().zip(least.ours.iter().zip(&least.theirs)) {
        let what = format!("{what}: longest wait of a second connection, wall clock");
        let limit = (theirs * RATIO_MAX * 100.0).round() / 100.0;
        figures.must(&what, (*ours, "ms"), format!("{theirs:.2} ms"), limit);
    }
    Ok(())
}

fn stalls_of(side: Side) -> Result<Vec<f64>> {
    let server = start_with(side, &[])?;
    let mut client = connect(&server)?;
    // A little less, so that there is something to append.
    let len = LARGEST_LEN - 1000;
    let set = longest_wait_ms_during(&server, || send_large(&mut client, "SET", len))?;
    let get = longest_wait_ms_during(&server, || {
        client.write_all(b"GET large\r\n")?;
        skip(&mut client, len + format!("${len}\r\n\r\n").len())
    })?;
    let edits = longest_wait_ms_during(&server, || {
        expect(&mut client, b"APPEND large x\r\n", format!(":{}\r\n", len + 1).as_bytes())?;
        expect(&mut client, b"SETRANGE large 5 y\r\n", format!(":{}\r\n", len + 1).as_bytes())?;
        client.write_all(b"BITCOUNT large\r\n")?;
        let bits = client.read(&mut [0; 64])?;
        client.write_all(b"GETRANGE large 0 -2\r\n")?;
        skip(&mut client, len + format!("${len}\r\n\r\n").len())?;
        if bits > 0 { Ok(()) } else { Err("BITCOUNT: no answer".into()) }
    })?;
    Ok(vec![set, get, edits])
}

fn connect(server: &RedisServer) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn expect(client: &mut TcpStream, request: &[u8], reply: &[u8]) -> Result {
    client.write_all(request)?;
    let mut seen = vec![0; reply.len()];
    client.read_exact(&mut seen)?;
    match seen == reply {
        true => Ok(()),
        false => Err(format!("answered {}", String::from_utf8_lossy(&seen)).into()),
    }
}

/// Sets `count` keys to values of `len` bytes, as many per request as make up some 100 kB.
fn fill(client: &mut TcpStream, count: usize, len: usize) -> Result {
    let value = vec![b'x'; len];
    let per_request = (100_000 / len).clamp(1, 500);
    for first in (0..count).step_by(per_request) {
        let keys = first..count.min(first + per_request);
        let mut request = format!("*{}\r\n$4\r\nMSET\r\n", 2 * keys.len() + 1).into_bytes();
        for key in keys {
            write!(request, "$16\r\nkey:{key:012}\r\n${len}\r\n")?;
            request.extend(&value);
            request.extend(b"\r\n");
        }
        expect(client, &request, b"+OK\r\n")?;
    }
    Ok(())
}

fn send_large(client: &mut TcpStream, command: &str, len: usize) -> Result {
    let head = format!("*3\r\n${}\r\n{command}\r\n$5\r\nlarge\r\n${len}\r\n", command.len());
    client.write_all(head.as_bytes())?;
    let chunk = vec![b'x'; 1 << 20];
    let mut left = len;
    while left > 0 {
        let count = left.min(chunk.len());
        client.write_all(&chunk[..count])?;
        left -= count;
    }
    expect(client, b"\r\n", b"+OK\r\n")
}

fn skip(client: &mut TcpStream, mut len: usize) -> Result {
    let mut chunk = vec![0; 1 << 20];
    while len > 0 {
        let wanted = len.min(chunk.len());
        let count = client.read(&mut chunk[..wanted])?;
        if count == 0 {
            return Err("the server closed the connection".into());
        }
        len -= count;
    }
    Ok(())
}
