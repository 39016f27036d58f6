//! A stream that many write and groups of workers share: logs, events, work.
//!
//! Every entry goes to one worker of each group and stays pending until it is acknowledged. Entries
//! of a dead worker can be taken over by others after some time. So every entry is worked on at
//! least once, and more than once only after a crash or a pause.

use std::time::Duration;

use redis::{RedisError, RedisResult, ToRedisArgs, Value};

use crate::line::Line;
use crate::store::Store;

/// Entries kept by default; older ones are dropped when new ones come.
const ENTRIES_MAX: usize = 100_000;
/// Entries read or taken over at once, at most.
const BATCH_MAX: usize = 1000;

/// One stream, by name.
#[derive(Clone, Debug)]
pub struct Log {
    name: String,
    entries_max: usize,
}

impl Log {
    /// The stream with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), entries_max: ENTRIES_MAX }
    }

    /// Keeps about this many entries, instead of a hundred thousand.
    #[must_use]
    pub fn keep(mut self, entries_max: usize) -> Self {
        self.entries_max = entries_max.max(1);
        self
    }

    /// A writer of this stream.
    pub fn writer(&self, store: &Store) -> LogWriter {
        LogWriter { log: self.clone(), line: Line::new(store) }
    }

    /// A worker of `group`. A group that does not exist is created and begins with the oldest
    /// entry. Each worker needs a `name` of its own; a worker that restarts under its name
    /// continues with its pending entries.
    pub fn worker(
        &self,
        store: &Store,
        group: impl Into<String>,
        name: impl Into<String>,
    ) -> LogWorker {
        LogWorker {
            log: self.clone(),
            group: group.into(),
            name: name.into(),
            line: Line::new(store),
            reads_own: true,
        }
    }
}

/// Writes entries.
#[derive(Debug)]
pub struct LogWriter {
    log: Log,
    line: Line,
}

impl LogWriter {
    /// Appends an entry of fields and values. Returns its id.
    ///
    /// Fails if the store cannot be reached. The entry may have been written nevertheless.
    pub async fn append<F: ToRedisArgs, V: ToRedisArgs>(
        &mut self,
        fields: &[(F, V)],
    ) -> RedisResult<String> {
        let mut command = redis::cmd("XADD");
        command.arg(&self.log.name).arg("MAXLEN").arg("~").arg(self.log.entries_max).arg("*");
        for (field, value) in fields {
            command.arg(field).arg(value);
        }
        self.line.ask(&command).await
    }
}

/// One entry that a worker has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id, which is its position in the stream.
    pub id: String,
    /// Fields and values, as they were written.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// The value of a field as text, empty when there is none.
    pub fn text(&self, field: &str) -> String {
        let found = self.fields.iter().find(|(name, _)| name == field.as_bytes());
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    }
}

/// Reads entries as a member of a group.
#[derive(Debug)]
pub struct LogWorker {
    log: Log,
    group: String,
    name: String,
    line: Line,
    /// Whether what this worker had in hand when it was last seen is still to be read.
    reads_own: bool,
}

impl LogWorker {
    /// Reads up to `count` entries; waits up to `wait` for the first. Empty if none came.
    ///
    /// Fails if the store cannot be reached. Entries that the store had already sent are returned
    /// by the next call.
    pub async fn read(&mut self, count: usize, wait: Duration) -> RedisResult<Vec<Entry>> {
        if self.line.is_new() {
            self.make_group().await?;
            // Whatever was on its way when the connection broke counts as ours.
            self.reads_own = true;
        }
        if self.reads_own {
            let own = self.read_from("0", count, None).await?;
            if !own.is_empty() {
                return Ok(own);
            }
            self.reads_own = false;
        }
        self.read_from(">", count, Some(wait)).await
    }

    /// Acknowledges entries, so that no worker receives them again. Returns how many were still
    /// this worker's; the others had been taken over, so another worker may have processed them,
    /// too.
    ///
    /// Fails if the store cannot be reached. Acknowledging again does no harm.
    pub async fn done(&mut self, entries: &[Entry]) -> RedisResult<usize> {
        if entries.is_empty() {
            return Ok(0);
        }
        let mut command = redis::cmd("XACK");
        command.arg(&self.log.name).arg(&self.group);
        for entry in entries {
            command.arg(&entry.id);
        }
        self.line.ask(&command).await
    }

    /// Takes over up to `count` entries that another worker has had for longer than `idle` without
    /// acknowledging them. Choose `idle` well above what the work takes.
    ///
    /// Fails if the store cannot be reached; [`read`](Self::read) then returns the entries taken
    /// over.
    pub async fn take_over(&mut self, idle: Duration, count: usize) -> RedisResult<Vec<Entry>> {
        if self.line.is_new() {
            self.make_group().await?;
            self.reads_own = true;
        }
        let mut command = redis::cmd("XAUTOCLAIM");
        command.arg(&self.log.name).arg(&self.group).arg(&self.name);
        command.arg(milliseconds(idle)).arg("0-0").arg("COUNT").arg(count.clamp(1, BATCH_MAX));
        match self.line.ask(&command).await? {
            Value::Array(parts) => parts.into_iter().nth(1).map_or(Ok(Vec::new()), entries),
            _ => Err(unexpected()),
        }
    }

    async fn make_group(&mut self) -> RedisResult<()> {
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(&self.log.name).arg(&self.group).arg("0").arg("MKSTREAM");
        match self.line.ask::<()>(&command).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            other => other,
        }
    }

    async fn read_from(
        &mut self,
        start: &str,
        count: usize,
        wait: Option<Duration>,
    ) -> RedisResult<Vec<Entry>> {
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(&self.name);
        command.arg("COUNT").arg(count.clamp(1, BATCH_MAX));
        if let Some(wait) = wait {
            // Zero would mean for ever.
            command.arg("BLOCK").arg(milliseconds(wait).max(1));
        }
        command.arg("STREAMS").arg(&self.log.name).arg(start);
        let reply = self.line.ask_blocking(&command, wait.unwrap_or_default()).await?;
        match reply {
            Value::Nil => Ok(Vec::new()),
            Value::Array(streams) => match streams.into_iter().next() {
                Some(Value::Array(stream)) => {
                    stream.into_iter().nth(1).map_or(Ok(Vec::new()), entries)
                }
                _ => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(i64::MAX as u64)
}

/// `[[id, [field, value, …]], …]`; an entry that was deleted in the meantime has no fields.
fn entries(reply: Value) -> RedisResult<Vec<Entry>> {
    let Value::Array(items) = reply else { return Err(unexpected()) };
    let mut entries = Vec::with_capacity(items.len());
    for item in items {
        let Value::Array(parts) = item else { return Err(unexpected()) };
        let mut parts = parts.into_iter();
        let (Some(id), Some(fields)) = (parts.next(), parts.next()) else {
            return Err(unexpected());
        };
        let id: String = redis::from_redis_value(id)?;
        let words: Vec<Vec<u8>> = match fields {
            Value::Nil => Vec::new(),
            fields => redis::from_redis_value(fields)?,
        };
        let mut words = words.into_iter();
        let mut fields = Vec::new();
        while let (Some(field), Some(value)) = (words.next(), words.next()) {
            fields.push((field, value));
        }
        entries.push(Entry { id, fields });
    }
    Ok(entries)
}

fn unexpected() -> RedisError {
    (redis::ErrorKind::UnexpectedReturnType, "the store's answer is no list of entries").into()
}
