//! Servers used as caches: how often a key is still there, under each eviction policy.
//!
//! All caches are asked for the same keys in the same order, by a law under which few keys are
//! asked for often and most hardly ever (Zipf). What is missing is set. Requests are paced: the
//! access clock of Redis and of our store counts seconds, so a cache that is filled anew within
//! a second knows nothing about recency.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use testkit::Random;

use crate::clock;

/// What is asked of every cache.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Keys that fit.
    pub held: usize,
    /// Keys that are asked for.
    pub universe: usize,
    /// Bytes of a value.
    pub value_len: usize,
    /// How many keys are asked for in a second.
    pub per_second: usize,
    /// How long before it counts.
    pub warm_seconds: usize,
    /// How long it counts.
    pub seconds: usize,
}

/// All evicting policies of Redis.
pub const POLICIES: [&str; 7] = [
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// Requests are sent so often in a second.
const BATCHES_PER_SECOND: usize = 50;
/// Times at which the limit is corrected while the cache warms up.
const CORRECTIONS: usize = 8;

/// A server with a limit, and what came of asking it.
pub struct Cache {
    stream: BufReader<TcpStream>,
    plan: Plan,
    memory_max: usize,
    bytes_per_key: usize,
    hits: usize,
    asked: usize,
}

impl Cache {
    /// A cache on the server at `port`, which holds about as many keys as planned. Fails when
    /// the server cannot be reached or answers something else.
    pub fn new(port: u16, policy: &str, plan: Plan) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let stream = BufReader::new(stream);
        let mut cache = Self { stream, plan, memory_max: 0, bytes_per_key: 0, hits: 0, asked: 0 };
        cache.command(&["CONFIG", "SET", "maxmemory-policy", policy])?;
        let before = cache.counted_memory()?;
        let all: Vec<usize> = (0..plan.held).collect();
        for batch in all.chunks(256) {
            cache.set(batch)?;
        }
        let filled = cache.counted_memory()?;
        cache.bytes_per_key = (filled - before) / plan.held;
        cache.command(&["FLUSHALL", "SYNC"])?;
        cache.limit(filled)?;
        Ok(cache)
    }

    /// Asks for keys, and sets those that are missing.
    fn ask(&mut self, keys: &[usize]) -> io::Result<()> {
        let mut request = Vec::new();
        for key in keys {
            write!(request, "*2\r\n$3\r\nGET\r\n$12\r\nkey:{key:08}\r\n")?;
        }
        self.stream.get_mut().write_all(&request)?;
        let mut missing = Vec::new();
        for key in keys {
            if !self.is_hit()? {
                missing.push(*key);
            }
        }
        self.asked += keys.len();
        self.hits += keys.len() - missing.len();
        self.set(&missing)
    }

    /// All keys end, far from now; the more often one is asked for, the later.
    fn set(&mut self, keys: &[usize]) -> io::Result<()> {
        let value = "v".repeat(self.plan.value_len);
        let mut request = Vec::new();
        for key in keys {
            let seconds = 100_000 + 800_000 / (key + 1);
            let len = value.len();
            write!(request, "*5\r\n$3\r\nSET\r\n$12\r\nkey:{key:08}\r\n${len}\r\n{value}\r\n")?;
            write!(request, "$2\r\nEX\r\n$6\r\n{seconds}\r\n")?;
        }
        self.stream.get_mut().write_all(&request)?;
        for _ in keys {
            let line = self.line()?;
            if line != "+OK" {
                return Err(io::Error::other(format!("SET: {line}")));
            }
        }
        Ok(())
    }

    fn is_hit(&mut self) -> io::Result<bool> {
        let line = self.line()?;
        let Some(len) = line.strip_prefix('$').and_then(|len| len.parse::<i64>().ok()) else {
            return Err(io::Error::other(format!("GET: {line}")));
        };
        let Ok(len) = usize::try_from(len) else { return Ok(false) };
        self.stream.read_exact(&mut vec![0; len + 2])?;
        Ok(true)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Sends a command and returns the reply: its line, or its text.
    fn command(&mut self, words: &[&str]) -> io::Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        let line = self.line()?;
        if line.starts_with('-') {
            return Err(io::Error::other(format!("{words:?}: {line}")));
        }
        let Some(Ok(len)) = line.strip_prefix('$').map(str::parse::<usize>) else {
            return Ok(line);
        };
        let mut text = vec![0; len + 2];
        self.stream.read_exact(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Bytes in use, as far as `maxmemory` counts them.
    fn counted_memory(&mut self) -> io::Result<usize> {
        let text = self.command(&["INFO", "memory"])?;
        let fact = |name: &str| {
            let mut facts = text.lines().filter_map(|line| line.split_once(':'));
            let found = facts.find(|(known, _)| *known == name);
            found.and_then(|(_, value)| value.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        Ok(fact("used_memory") - fact("mem_not_counted_for_evict"))
    }

    fn limit(&mut self, memory_max: usize) -> io::Result<()> {
        self.memory_max = memory_max;
        self.command(&["CONFIG", "SET", "maxmemory", &memory_max.to_string()]).map(drop)
    }

    /// How many keys it holds.
    pub fn held(&mut self) -> io::Result<usize> {
        let line = self.command(&["DBSIZE"])?;
        line.trim_start_matches(':').parse().map_err(io::Error::other)
    }

    /// Buffers of the connection weigh something, too: the limit follows the number of keys.
    fn correct_limit(&mut self) -> io::Result<()> {
        let (held, wanted) = (self.held()?, self.plan.held);
        let missing = wanted as i64 - held as i64;
        let memory_max = self.memory_max as i64 + missing * self.bytes_per_key as i64;
        self.limit(memory_max as usize)
    }

    /// Hits in percent, of what was asked for since it was warm.
    pub fn hit_rate(&self) -> f64 {
        100.0 * self.hits as f64 / self.asked.max(1) as f64
    }
}

/// Asks all caches for the same keys as the plan says. Fails when a server does.
pub fn run(plan: Plan, seed: u64, caches: &mut [Cache]) -> io::Result<()> {
    let (mut random, keys) = (Random::seeded(seed), Zipf::new(plan.universe));
    let started_at = clock::now();
    let warm_batches = plan.warm_seconds * BATCHES_PER_SECOND;
    let batches = warm_batches + plan.seconds * BATCHES_PER_SECOND;
    let correct_each = (warm_batches / CORRECTIONS).max(1);
    for batch in 0..batches {
        let count = plan.per_second / BATCHES_PER_SECOND;
        let asked: Vec<usize> = (0..count).map(|_| keys.draw(&mut random)).collect();
        for cache in &mut *caches {
            if batch == warm_batches {
                (cache.hits, cache.asked) = (0, 0);
            }
            cache.ask(&asked)?;
            // In the first half it is filled.
            if batch > warm_batches / 2 && batch <= warm_batches && batch % correct_each == 0 {
                cache.correct_limit()?;
            }
        }
        let next = Duration::from_secs(1) * (batch + 1) as u32 / BATCHES_PER_SECOND as u32;
        std::thread::sleep(clock::now().until(started_at + next));
    }
    Ok(())
}

/// Numbers from 0 on, each `n` with a weight of 1 / (n + 1).
struct Zipf {
    /// The weight of all numbers up to each.
    sums: Vec<f64>,
}

impl Zipf {
    fn new(universe: usize) -> Self {
        let mut sum = 0.0;
        let sums = (1..=universe).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self { sums: sums.collect() }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let fraction = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let wanted = fraction * self.sums.last().copied().unwrap_or(0.0);
        self.sums.partition_point(|sum| *sum <= wanted).min(self.sums.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_drawn_twice_as_often_as_the_second() {
        let (zipf, mut random) = (Zipf::new(1000), Random::seeded(1));
        let mut seen = vec![0_u32; 1000];
        (0..100_000).for_each(|_| seen[zipf.draw(&mut random)] += 1);
        let ratio = f64::from(seen[0]) / f64::from(seen[1]);
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
        assert!(seen[999] < 100);
    }
}
