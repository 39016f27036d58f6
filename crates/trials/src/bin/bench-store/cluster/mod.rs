//! What cluster mode costs beside the same server without it, and keys that move and replicas that
//! take over, beside redis-server's.

mod failover;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use testkit::RedisServer;
use trials::clock;

use crate::replication::{Line, fill, rounded, write_request};
use crate::report::Figures;
use crate::servers::{Expiry, PerSide, Side, cpu_us, info, insert, start_on_load_core, start_with};
use crate::{Result, Scale};

/// Of our standalone server.
const CPU_RATIO_MAX: f64 = 1.08;
const BYTES_RATIO_MAX: f64 = 1.01;
/// Of redis-server's time.
const MOVE_RATIO_MAX: f64 = 1.0;
const TURN_MS_MAX: f64 = 10.0;
/// Keys per MIGRATE.
const MOVED_AT_ONCE: usize = 1000;
/// Fields of a hash of about 300 MB, and bytes of each value.
const FIELDS: usize = 2_000_000;
const FIELD_LEN: usize = 100;

/// Whether a server is a node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Standalone,
    Cluster,
}

/// What a key or a request costs in either mode.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    bytes: f64,
    set_us: f64,
    get_us: f64,
}

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    let ratios = PerSide::measure(|side| {
        let standalone = costs(scale, side, Mode::Standalone)?;
        let cluster = costs(scale, side, Mode::Cluster)?;
        Ok(Costs {
            bytes: cluster.bytes / standalone.bytes,
            set_us: cluster.set_us / standalone.set_us,
            get_us: cluster.get_us / standalone.get_us,
        })
    })?;
    let mut must = |what: &str, ratio: fn(&Costs) -> f64, limit: f64| {
        let theirs = format!("{:.3}", ratio(&ratios.theirs));
        let what = format!("cluster mode over standalone: {what}");
        // Three digits, since one in a hundred matters.
        let ours = (ratio(&ratios.ours) * 1000.0).round() / 1000.0;
        figures.must(&what, (ours, ""), theirs, limit);
    };
    must("bytes per key", |costs| costs.bytes, BYTES_RATIO_MAX);
    must("processor time per SET", |costs| costs.set_us, CPU_RATIO_MAX);
    must("processor time per GET", |costs| costs.get_us, CPU_RATIO_MAX);
    moves(scale, figures)?;
    large_value(figures)?;
    failover::measure(scale, figures)
}

fn start(side: Side, mode: Mode) -> Result<RedisServer> {
    if mode == Mode::Standalone {
        return start_with(side, &[]);
    }
    let server = start_with(side, &["--cluster-enabled", "yes"])?;
    let mut line = Line::open(&server)?;
    line.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
    let begun_at = clock::now();
    while !line.ask(&["CLUSTER", "INFO"])?.contains("cluster_state:ok") {
        if clock::now().since(begun_at) > Duration::from_secs(60) {
            return Err("a cluster of one node does not begin to serve".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(server)
}

/// The least of all rounds, each on a new server.
fn costs(scale: &Scale, side: Side, mode: Mode) -> Result<Costs> {
    let keys = scale.sync_keys;
    let mut least = Costs { bytes: f64::MAX, set_us: f64::MAX, get_us: f64::MAX };
    for _ in 0..scale.rounds {
        let server = start(side, mode)?;
        let empty = info(&server, "memory", "used_memory")?;
        let before = cpu_us(&server)?;
        insert(&server, 0..keys, Expiry::Never)?;
        least.set_us = least.set_us.min((cpu_us(&server)? - before) / keys as f64);
        let bytes = (info(&server, "memory", "used_memory")? - empty) / keys as f64;
        least.bytes = least.bytes.min(bytes);
        let before = cpu_us(&server)?;
        get_all(&server, keys)?;
        least.get_us = least.get_us.min((cpu_us(&server)? - before) / keys as f64);
    }
    Ok(least)
}

/// Reads every key once, sixteen at a time, in an order of its own.
fn get_all(server: &RedisServer, keys: usize) -> Result {
    const PIPELINE: usize = 16;
    /// Of a value as `insert` writes it.
    const REPLY_LEN: usize = "$8\r\nv0000000\r\n".len();
    /// Has no divisor in common with the numbers of keys that are used.
    const STEP: usize = 7_368_787;
    let mut stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    stream.set_nodelay(true)?;
    let (mut request, mut replies) = (Vec::new(), vec![0; PIPELINE * REPLY_LEN]);
    for first in (0..keys - keys % PIPELINE).step_by(PIPELINE) {
        request.clear();
        for at in first..first + PIPELINE {
            let key = format!("key:{:012}", at * STEP % keys);
            write_request(&mut request, &[b"GET".as_slice(), key.as_bytes()]);
        }
        stream.write_all(&request)?;
        stream.read_exact(&mut replies)?;
    }
    Ok(())
}

/// Small keys, a thousand per request.
fn moves(scale: &Scale, figures: &mut Figures) -> Result {
    let keys = scale.sync_keys / 10;
    let seconds = PerSide::measure(|side| {
        let mut least = f64::MAX;
        for _ in 0..scale.rounds {
            let (source, target) = (start_with(side, &[])?, start_on_load_core(side, &[])?);
            fill(&source, 0..keys, 100)?;
            let begun_at = clock::now();
            migrate(&source, &target, keys)?;
            least = least.min(clock::now().since(begun_at).as_secs_f64());
        }
        Ok(least)
    })?;
    let what = format!("MIGRATE of {keys} keys of 100 bytes, {MOVED_AT_ONCE} per request, seconds");
    let limit = rounded(seconds.theirs * MOVE_RATIO_MAX);
    let theirs = format!("{:.2}", seconds.theirs);
    figures.must(&what, (rounded(seconds.ours), ""), theirs, limit);
    Ok(())
}

fn migrate(source: &RedisServer, target: &RedisServer, keys: usize) -> Result {
    let mut line = Line::open(source)?;
    let port = target.port().to_string();
    for first in (0..keys).step_by(MOVED_AT_ONCE) {
        let names: Vec<String> =
            (first..keys.min(first + MOVED_AT_ONCE)).map(|key| format!("key:{key:012}")).collect();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "60000", "KEYS"];
        words.extend(names.iter().map(String::as_str));
        line.ask(&words)?;
    }
    Ok(())
}

/// The longest turn of either server while a hash of 300 MB moves.
fn large_value(figures: &mut Figures) -> Result {
    let (source, target) = (start_with(Side::Ours, &[])?, start_on_load_core(Side::Ours, &[])?);
    let mut line = Line::open(&source)?;
    let value = "v".repeat(FIELD_LEN);
    for first in (0..FIELDS).step_by(100) {
        let fields: Vec<String> = (first..first + 100).map(|at| format!("field:{at:09}")).collect();
        let pairs = fields.iter().flat_map(|field| [field.as_str(), &value]);
        let words: Vec<&str> = ["HSET", "large"].into_iter().chain(pairs).collect();
        line.ask(&words)?;
    }
    let port = target.port().to_string();
    line.ask(&["MIGRATE", "127.0.0.1", &port, "large", "0", "120000"])?;
    for (what, server) in [("source", &source), ("target", &target)] {
        let turn_ms = info(server, "stats", "tenure_longest_turn_usec")? / 1e3;
        let what = format!("a hash of 300 MB moves: longest turn of the {what}");
        figures.must(&what, (turn_ms, "ms"), "not told".to_owned(), TURN_MS_MAX);
    }
    Ok(())
}
