//! Replication beside redis-server's: a primary on the servers' core, its replicas on the other,
//! always of the same kind.
//!
//! `sync` has what a full sync costs, `stream` what follows it.

mod stream;
mod sync;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use testkit::RedisServer;
use trials::clock;

use crate::report::Figures;
use crate::servers::{Side, start_on_load_core, start_with};
use crate::{Result, Scale};

pub(crate) fn measure(scale: &Scale, figures: &mut Figures) -> Result {
    sync::measure(scale, figures)?;
    stream::measure(scale, figures)
}

/// A server that sends at once, straight to the sockets of its replicas, however late they read.
const PRIMARY: [&str; 8] = [
    "--repl-diskless-sync",
    "yes",
    "--repl-diskless-sync-delay",
    "0",
    "--client-output-buffer-limit",
    "replica 0 0 0",
    "--repl-backlog-size",
    "64mb",
];

fn start_primary(side: Side) -> Result<RedisServer> {
    start_with(side, &PRIMARY)
}

/// A server that follows nobody yet.
fn start_replica(side: Side) -> Result<RedisServer> {
    start_on_load_core(side, &PRIMARY)
}

/// Replicas that have everything.
fn attach(side: Side, primary: &RedisServer, count: usize) -> Result<Vec<RedisServer>> {
    let replicas = (0..count).map(|_| start_replica(side)).collect::<Result<Vec<_>>>()?;
    for replica in &replicas {
        follow(replica, primary)?;
    }
    Ok(replicas)
}

/// How long a replica may take for anything.
const PATIENCE: Duration = Duration::from_secs(180);

/// Makes a server a replica, and returns after how many seconds it follows the stream.
fn follow(replica: &RedisServer, primary: &RedisServer) -> Result<f64> {
    let mut line = Line::open(replica)?;
    let begun_at = clock::now();
    line.ask(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()])?;
    loop {
        if line.info("master_link_status")?.as_deref() == Some("up") {
            return Ok(clock::now().since(begun_at).as_secs_f64());
        }
        if clock::now().since(begun_at) > PATIENCE {
            return Err(format!("no link:\n{}", replica.log().join("\n")).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until all replicas have applied what was written up to now.
fn await_in_step(primary: &RedisServer, replicas: &[RedisServer]) -> Result {
    let begun_at = clock::now();
    let offset = Line::open(primary)?.number("master_repl_offset")?;
    for replica in replicas {
        let mut line = Line::open(replica)?;
        while line.number("slave_repl_offset")? < offset {
            if clock::now().since(begun_at) > PATIENCE {
                return Err("a replica does not catch up".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// A connection that is asked one thing at a time: a process per question would take the core
/// away from what is measured.
pub(crate) struct Line(BufReader<TcpStream>);

impl Line {
    pub(crate) fn open(server: &RedisServer) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", server.port()))?;
        stream.set_nodelay(true)?;
        Ok(Line(BufReader::new(stream)))
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<String> {
        let mut request = Vec::new();
        write_request(&mut request, words);
        self.0.get_mut().write_all(&request)?;
        self.reply()
    }

    /// One reply, of those that have one part.
    fn reply(&mut self) -> Result<String> {
        let mut head = String::new();
        self.0.read_line(&mut head)?;
        match head.trim_end().strip_prefix('$') {
            Some(len) => {
                let mut bulk = vec![0; len.parse::<usize>()? + 2];
                self.0.read_exact(&mut bulk)?;
                Ok(String::from_utf8_lossy(&bulk).into_owned())
            }
            None if head.starts_with('-') || head.is_empty() => Err(head.into()),
            None => Ok(head.trim_end().to_owned()),
        }
    }

    /// A field of INFO replication.
    fn info(&mut self, name: &str) -> Result<Option<String>> {
        let all = self.ask(&["INFO", "replication"])?;
        let found = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(found.map(str::to_owned))
    }

    fn number(&mut self, name: &str) -> Result<u64> {
        let text = self.info(name)?.ok_or_else(|| format!("INFO has no {name}"))?;
        Ok(text.parse()?)
    }
}

pub(crate) fn write_request(request: &mut Vec<u8>, words: &[impl AsRef<[u8]>]) {
    request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}

/// Sets keys to values that do not compress.
pub(crate) fn fill(server: &RedisServer, keys: Range<usize>, value_len: usize) -> Result {
    const BATCH_BYTES: usize = 64 * 1024;
    let batch_len = (BATCH_BYTES / value_len).clamp(1, 64);
    let mut line = Line::open(server)?;
    let mut request = Vec::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for first in keys.clone().step_by(batch_len) {
        let batch = first..keys.end.min(first + batch_len);
        request.clear();
        for number in batch.clone() {
            let value = noise(&mut random, value_len);
            let key = format!("key:{number:012}");
            write_request(&mut request, &[b"SET".as_slice(), key.as_bytes(), &value]);
        }
        line.0.get_mut().write_all(&request)?;
        for _ in batch {
            line.reply()?;
        }
    }
    Ok(())
}

fn noise(random: &mut u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        bytes.extend_from_slice(&random.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Two digits behind the point: what is printed is what is compared.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
