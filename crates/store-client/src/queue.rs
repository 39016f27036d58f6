//! Jobs that survive the crash of their workers.
//!
//! ```text
//! push ──► waiting ── take ──► working:NAME ── done ──► gone
//!             ▲                     │
//!             └──── recover ◄───────┘ the worker's alive:NAME has expired
//!                      └──► failed, after as many crashes as the queue allows
//! ```
//! The store itself moves a job to its worker's own list (BLMOVE), so no crash can lose it. A
//! worker shows that it is alive by a key that expires; [`Worker::recover`] puts the jobs of dead
//! workers back. So every job is worked on at least once, and more than once only after a crash or
//! a pause: jobs must tolerate that.

use std::time::Duration;

use redis::{Cmd, RedisResult, ToRedisArgs};

use crate::line::Line;
use crate::store::Store;

/// Jobs that may wait by default; a queue that nobody empties must not fill the store.
const WAITING_MAX: usize = 1_000_000;
/// A worker counts as dead after this long without a sign by default.
const ALIVE_FOR: Duration = Duration::from_secs(30);
/// A job whose worker crashed this many times is set aside by default: it may be the cause.
const CRASHES_MAX: u32 = 3;

/// A worker that gave no sign for so long is forgotten. Until then its list is looked into: a take
/// that was held up on the way may still put a job there after the worker was taken for dead.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// KEYS: waiting. ARGV: jobs that may wait, the job.
const PUSH: &str = "\
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('LPUSH', KEYS[1], ARGV[2])
return 1";

/// KEYS: working, crashes. ARGV: the job.
const DONE: &str = "\
redis.call('HDEL', KEYS[2], redis.sha1hex(ARGV[1]))
return redis.call('LREM', KEYS[1], -1, ARGV[1])";

/// KEYS: alive, workers. ARGV: milliseconds to live, the worker.
const BEAT: &str = "\
redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
return redis.call('ZADD', KEYS[2], redis.call('TIME')[1], ARGV[2])";

/// KEYS: alive, working, waiting, crashes, failed, workers.
/// ARGV: crashes allowed, the worker, seconds after which it is forgotten.
const RECOVER: &str = "\
if redis.call('EXISTS', KEYS[1]) == 1 then return {0, 0} end
local back, failed = 0, 0
while true do
  local job = redis.call('LINDEX', KEYS[2], 0)
  if not job then break end
  local digest = redis.sha1hex(job)
  if redis.call('HINCRBY', KEYS[4], digest, 1) >= tonumber(ARGV[1]) then
    redis.call('LMOVE', KEYS[2], KEYS[5], 'LEFT', 'LEFT')
    redis.call('HDEL', KEYS[4], digest)
    failed = failed + 1
  else
    redis.call('LMOVE', KEYS[2], KEYS[3], 'LEFT', 'RIGHT')
    back = back + 1
  end
end
local seen_at = tonumber(redis.call('ZSCORE', KEYS[6], ARGV[2]) or 0)
if redis.call('TIME')[1] - seen_at > tonumber(ARGV[3]) then
  redis.call('ZREM', KEYS[6], ARGV[2])
end
return {back, failed}";

/// One queue, by name. Its keys share a hash tag, so that it works in a cluster.
#[derive(Clone, Debug)]
pub struct Queue {
    name: String,
    waiting_max: usize,
    alive_for: Duration,
    crashes_max: u32,
}

impl Queue {
    /// The queue with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            waiting_max: WAITING_MAX,
            alive_for: ALIVE_FOR,
            crashes_max: CRASHES_MAX,
        }
    }

    /// How many jobs may wait, instead of a million. More are refused.
    #[must_use]
    pub fn waiting_max(mut self, jobs: usize) -> Self {
        self.waiting_max = jobs;
        self
    }

    /// After how long without a sign a worker counts as dead, instead of 30 s. All workers of a
    /// queue should use the same value. A worker gives a sign whenever it takes or finishes a job,
    /// and with [`Worker::beat`].
    #[must_use]
    pub fn alive_for(mut self, duration: Duration) -> Self {
        self.alive_for = duration.max(Duration::from_millis(1));
        self
    }

    /// After how many crashes of its workers a job is set aside, instead of three.
    #[must_use]
    pub fn crashes_max(mut self, crashes: u32) -> Self {
        self.crashes_max = crashes.max(1);
        self
    }

    /// A sender that adds jobs.
    pub fn sender(&self, store: &Store) -> Sender {
        Sender { queue: self.clone(), line: Line::new(store) }
    }

    /// A worker. Each running worker needs a `name` of its own; a worker that restarts under its
    /// name continues with its unfinished jobs.
    pub fn worker(&self, store: &Store, name: impl Into<String>) -> Worker {
        let (name, line) = (name.into(), Line::new(store));
        Worker { queue: self.clone(), name, line, in_hand: Vec::new(), leftovers: Vec::new() }
    }

    fn key(&self, part: &str) -> String {
        format!("{{{}}}:{part}", self.name)
    }
}

/// Adds jobs.
#[derive(Debug)]
pub struct Sender {
    queue: Queue,
    line: Line,
}

/// The result of [`Sender::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The job waits for a worker.
    Waiting,
    /// The queue is full: the job was not added.
    Full,
}

impl Sender {
    /// Adds a job at the end of the queue.
    ///
    /// Fails if the store cannot be reached. The job may have been added nevertheless.
    pub async fn push(&mut self, job: impl ToRedisArgs) -> RedisResult<Pushed> {
        let mut call = script(PUSH, &[self.queue.key("waiting")]);
        call.arg(self.queue.waiting_max).arg(job);
        let added: bool = self.line.ask(&call).await?;
        Ok(if added { Pushed::Waiting } else { Pushed::Full })
    }

    /// The number of waiting jobs.
    pub async fn waiting(&mut self) -> RedisResult<usize> {
        let key = self.queue.key("waiting");
        self.line.ask(redis::cmd("LLEN").arg(key)).await
    }
}

/// A job that a worker has taken. Pass it to [`Worker::done`] when it is finished. A job that is
/// only dropped stays in the worker's list, and is put back when the worker is dead.
#[derive(Debug)]
#[must_use]
pub struct Job {
    bytes: Vec<u8>,
}

impl Job {
    /// The bytes that were pushed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Whether a finished job still belonged to its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// Yes: no other worker has worked on it.
    Ours,
    /// No: the worker counted as dead, and its job was put back. Another worker may have done it,
    /// too.
    TakenAway,
}

/// What [`Worker::recover`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Jobs that wait again, in front of all others.
    pub back: usize,
    /// Jobs whose workers crashed too often, now in the list `{NAME}:failed`.
    pub failed: usize,
}

/// Works on jobs, one or several at a time.
#[derive(Debug)]
pub struct Worker {
    queue: Queue,
    name: String,
    line: Line,
    /// Jobs that were handed out and are not finished.
    in_hand: Vec<Vec<u8>>,
    /// Jobs in this worker's list that nobody holds: of a former life, or whose answer was lost.
    leftovers: Vec<Vec<u8>>,
}

impl Worker {
    /// Takes the next job; waits up to `wait` for one.
    ///
    /// Fails if the store cannot be reached. A job that was on its way is returned by the next
    /// call.
    pub async fn take(&mut self, wait: Duration) -> RedisResult<Option<Job>> {
        if self.line.is_new() {
            self.come_back().await?;
        }
        self.beat().await?;
        let bytes = match self.leftovers.pop() {
            Some(bytes) => Some(bytes),
            None => self.take_waiting(wait).await?,
        };
        Ok(bytes.map(|bytes| {
            self.in_hand.push(bytes.clone());
            Job { bytes }
        }))
    }

    /// Finishes a job, so that no worker receives it again.
    ///
    /// Fails if the store cannot be reached; the job is then returned again by
    /// [`take`](Self::take), here or to another worker.
    pub async fn done(&mut self, job: Job) -> RedisResult<Finished> {
        if let Some(at) = self.in_hand.iter().position(|held| *held == job.bytes) {
            self.in_hand.swap_remove(at);
        }
        if self.line.is_new() {
            self.come_back().await?;
        }
        let mut call = script(DONE, &[self.working(), self.queue.key("crashes")]);
        let removed: usize = self.line.ask(call.arg(&job.bytes)).await?;
        if let Some(at) = self.leftovers.iter().position(|left| *left == job.bytes) {
            self.leftovers.swap_remove(at);
        }
        self.beat().await?;
        Ok(if removed > 0 { Finished::Ours } else { Finished::TakenAway })
    }

    /// Shows that this worker is alive. Call this during work that takes longer than half of the
    /// time after which a worker counts as dead.
    pub async fn beat(&mut self) -> RedisResult<()> {
        let mut call = script(BEAT, &[self.alive(&self.name), self.queue.key("workers")]);
        call.arg(self.queue.alive_for.as_millis() as u64).arg(&self.name);
        self.line.ask(&call).await
    }

    /// Puts back the jobs of dead workers. Any worker may call this, from time to time.
    pub async fn recover(&mut self) -> RedisResult<Recovered> {
        let workers = self.queue.key("workers");
        let all = redis::cmd("ZRANGE").arg(&workers).arg(0).arg(-1).to_owned();
        let names: Vec<String> = self.line.ask(&all).await?;
        let mut recovered = Recovered::default();
        for name in names {
            let mut keys = vec![self.alive(&name), self.queue.key(&format!("working:{name}"))];
            let parts = ["waiting", "crashes", "failed", "workers"];
            keys.extend(parts.map(|part| self.queue.key(part)));
            let mut call = script(RECOVER, &keys);
            call.arg(self.queue.crashes_max).arg(&name).arg(FORGOTTEN_AFTER.as_secs());
            let (back, failed): (usize, usize) = self.line.ask(&call).await?;
            recovered.back += back;
            recovered.failed += failed;
        }
        Ok(recovered)
    }

    async fn take_waiting(&mut self, wait: Duration) -> RedisResult<Option<Vec<u8>>> {
        // A worker that waits must not look dead: it waits in slices, with a sign before each.
        let slice_max = (self.queue.alive_for / 3).max(Duration::from_millis(1));
        let mut left = wait;
        loop {
            let slice = left.min(slice_max);
            let mut command = redis::cmd("BLMOVE");
            command.arg(self.queue.key("waiting")).arg(self.working()).arg("RIGHT").arg("LEFT");
            // Zero would mean for ever.
            command.arg(slice.as_secs_f64().max(0.001));
            let moved: Option<Vec<u8>> = self.line.ask_blocking(&command, slice).await?;
            left = left.saturating_sub(slice);
            if moved.is_some() || left.is_zero() {
                return Ok(moved);
            }
            self.beat().await?;
        }
    }

    /// Signs in, and finds what lies in this worker's list without anybody holding it.
    async fn come_back(&mut self) -> RedisResult<()> {
        self.beat().await?;
        let list = self.working();
        let mut lying: Vec<Vec<u8>> =
            self.line.ask(redis::cmd("LRANGE").arg(list).arg(0).arg(-1)).await?;
        for held in &self.in_hand {
            if let Some(at) = lying.iter().position(|job| job == held) {
                lying.remove(at);
            }
        }
        self.leftovers = lying;
        Ok(())
    }

    fn working(&self) -> String {
        self.queue.key(&format!("working:{}", self.name))
    }

    fn alive(&self, name: &str) -> String {
        self.queue.key(&format!("alive:{name}"))
    }
}

/// Scripts as small as these are sent whole: a digest would save less than its fallback costs.
fn script(text: &str, keys: &[String]) -> Cmd {
    let mut call = redis::cmd("EVAL");
    call.arg(text).arg(keys.len()).arg(keys);
    call
}
