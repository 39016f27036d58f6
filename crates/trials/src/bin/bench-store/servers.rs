//! Our server and theirs as processes with a core of their own, and what they use.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::Path;

use rustix::thread::{CpuSet, sched_setaffinity};
use testkit::{RedisServer, ServerProgram};

use crate::Result;

const SERVER_CORE: &str = "0";
const LOAD_CORE: usize = 1;

/// Whose server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Theirs,
}

/// In the order of every round.
pub(crate) const SIDES: [Side; 2] = [Side::Ours, Side::Theirs];

/// A figure of either server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PerSide<T> {
    pub(crate) ours: T,
    pub(crate) theirs: T,
}

impl<T> PerSide<T> {
    /// Measures ours, then theirs.
    pub(crate) fn measure(mut one: impl FnMut(Side) -> Result<T>) -> Result<Self> {
        Ok(Self { ours: one(Side::Ours)?, theirs: one(Side::Theirs)? })
    }

    pub(crate) fn side_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }
}

/// Keeps this process, and what it starts from now on, off the servers' core.
///
/// Fails on a machine with one core, where nothing of this can be measured.
pub(crate) fn stay_on_the_load_core() -> Result {
    let mut cores = CpuSet::new();
    cores.set(LOAD_CORE);
    sched_setaffinity(None, &cores).map_err(|error| {
        format!("server and load need two cores, 0 and {LOAD_CORE}: {error}").into()
    })
}

/// Starts a server on its core, without persistence.
pub(crate) fn start(side: Side) -> Result<RedisServer> {
    start_with(side, &[])
}

/// The same, with more settings.
pub(crate) fn start_with(side: Side, settings: &[&str]) -> Result<RedisServer> {
    Ok(RedisServer::builder().program(pinned(side)?).args(settings).start())
}

/// Starts a server beside whoever asks, so that another one has the servers' core for itself.
pub(crate) fn start_on_load_core(side: Side, settings: &[&str]) -> Result<RedisServer> {
    Ok(RedisServer::builder().program(unpinned(side)?).args(settings).start())
}

/// The program of a server or sentinel that has the servers' core.
pub(crate) fn pinned(side: Side) -> Result<ServerProgram> {
    let pinned = ServerProgram::new("taskset").arg("-c").arg(SERVER_CORE);
    Ok(match side {
        Side::Ours => pinned.arg(our_program()?).arg("serve"),
        Side::Theirs => pinned.arg("redis-server"),
    })
}

/// The program of one that runs beside whoever asks.
pub(crate) fn unpinned(side: Side) -> Result<ServerProgram> {
    Ok(match side {
        Side::Ours => ServerProgram::new(our_program()?).arg("serve"),
        Side::Theirs => ServerProgram::redis(),
    })
}

/// Starts another `tenure` on that core.
pub(crate) fn start_program(tenure: &Path) -> Result<RedisServer> {
    let pinned = ServerProgram::new("taskset").arg("-c").arg(SERVER_CORE);
    Ok(RedisServer::builder().program(pinned.arg(tenure).arg("serve")).start())
}

/// `tenure` lies beside this program.
fn our_program() -> Result<std::path::PathBuf> {
    let path = std::env::current_exe()?.with_file_name("tenure");
    if path.exists() {
        return Ok(path);
    }
    Err(format!("{} is not built: run `cargo xtask bench store`", path.display()).into())
}

/// Processor time of all threads so far, in microseconds. The scheduler counts nanoseconds, where
/// `/proc/PID/stat` has ticks of ten milliseconds.
pub(crate) fn cpu_us(server: &RedisServer) -> Result<f64> {
    cpu_us_of(server.pid())
}

/// The same of any process.
pub(crate) fn cpu_us_of(pid: u32) -> Result<f64> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        total += text.split_whitespace().next().unwrap_or("").parse::<u64>()?;
    }
    Ok(total as f64 / 1000.0)
}

/// Resident memory in bytes.
pub(crate) fn resident_bytes(server: &RedisServer) -> Result<f64> {
    resident_bytes_of(server.pid())
}

/// The same of any process.
pub(crate) fn resident_bytes_of(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages: u64 = text.split_whitespace().nth(1).unwrap_or("").parse()?;
    Ok((pages * rustix::param::page_size() as u64) as f64)
}

/// A number that INFO tells.
pub(crate) fn info(server: &RedisServer, section: &str, field: &str) -> Result<f64> {
    let text = server.cli(&["INFO", section]);
    let mut lines = text.lines().filter_map(|line| line.trim_end().split_once(':'));
    let found = lines.find(|(name, _)| *name == field);
    let (_, value) = found.ok_or_else(|| format!("INFO {section} has no {field}"))?;
    Ok(value.parse()?)
}

/// Whether keys are given an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    Tomorrow,
}

/// Requests sent before their replies are read.
const BATCH: usize = 64;

/// Sets keys of 16 bytes to values of 8 bytes that are no numbers.
pub(crate) fn insert(server: &RedisServer, keys: Range<usize>, expiry: Expiry) -> Result {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    stream.set_nodelay(true)?;
    let mut request = Vec::new();
    let mut replies = vec![0; BATCH * REPLY.len()];
    for first in keys.clone().step_by(BATCH) {
        let batch = first..keys.end.min(first + BATCH);
        let replies = &mut replies[..batch.len() * REPLY.len()];
        request.clear();
        batch.for_each(|number| write_set(&mut request, number, expiry));
        stream.write_all(&request)?;
        stream.read_exact(replies)?;
        if !replies.chunks(REPLY.len()).all(|reply| reply == REPLY) {
            return Err(format!("SET: {}", String::from_utf8_lossy(replies)).into());
        }
    }
    Ok(())
}

const REPLY: &[u8] = b"+OK\r\n";

fn write_set(request: &mut Vec<u8>, number: usize, expiry: Expiry) {
    let words = if expiry == Expiry::Never { 3 } else { 5 };
    let tail = if expiry == Expiry::Never { "" } else { "$2\r\nEX\r\n$5\r\n86400\r\n" };
    write!(
        request,
        "*{words}\r\n$3\r\nSET\r\n$16\r\nkey:{number:012}\r\n$8\r\nv{:07}\r\n{tail}",
        number % 10_000_000
    )
    .expect("a buffer takes all bytes");
}
