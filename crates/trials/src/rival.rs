//! Elections as other systems run them, on the same key as ours: rivals for a rolling migration.
//!
//! Each keeps its own habits of renewing and releasing, at its own intervals scaled to a shorter
//! lease. Recorded is when it had reason to act: from the answer that made it the leader until it
//! was killed or its lease had run out, counted from the sending of its last renewal. That it may
//! believe in itself for longer is its own affair.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use redis::{Commands, Connection, RedisResult};
use tenure_core::Moment;

use crate::clock;
use crate::record::{Acting, Record};

/// How a rival renews and releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// GET, compare, EXPIRE; GET, compare, DEL.
    Sovereign,
    /// GET, compare, EXPIRE; compare-and-delete in one script.
    TitanAas,
    /// Both in one script each.
    Honua,
}

/// What a rival is and how it lives.
#[derive(Clone, Debug)]
pub struct Rival {
    /// The server.
    pub url: String,
    /// The key it contends for.
    pub key: String,
    /// Its id.
    pub id: String,
    /// How it renews and releases.
    pub habit: Habit,
    /// Its lease, whole seconds in the wild; shorter here.
    pub ttl: Duration,
    /// How often it acts.
    pub every: Duration,
    /// How long it dawdles between two commands that belong together, as a garbage collector does.
    pub dawdles: Duration,
    /// After how many renewals it stops and releases.
    pub stops_after: u32,
    /// How long it rests before it starts anew.
    pub rests: Duration,
}

impl Rival {
    /// Runs until told to end; ends as if killed, without a release.
    pub fn start(self, record: Arc<Mutex<Record>>) -> RunningRival {
        let ends = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let ends = Arc::clone(&ends);
            move || self.live(&ends, &record)
        });
        RunningRival { ends, thread: Some(thread) }
    }

    fn live(&self, ends: &AtomicBool, record: &Mutex<Record>) {
        let client = redis::Client::open(self.url.as_str()).expect("a rival gets a valid URL");
        while !ends.load(Ordering::SeqCst) {
            let Ok(mut connection) = client.get_connection() else { continue };
            let _ = self.one_life(&mut connection, ends, record);
        }
    }

    /// From a start to a release, a kill or an error.
    fn one_life(
        &self,
        connection: &mut Connection,
        ends: &AtomicBool,
        record: &Mutex<Record>,
    ) -> RedisResult<()> {
        let mut sent_at = clock::now();
        while !self.try_to_acquire(connection)? {
            if ends.load(Ordering::SeqCst) {
                return Ok(());
            }
            std::thread::sleep(self.every);
            sent_at = clock::now();
        }
        let began_at = clock::now();
        let mut renewals = 0;
        let result = loop {
            std::thread::sleep(self.every);
            if ends.load(Ordering::SeqCst) || renewals >= self.stops_after {
                break Ok(());
            }
            let renewal_sent_at = clock::now();
            match self.renew(connection) {
                // A renewal that came after the end of its own lease renewed somebody else's.
                Ok(true) if clock::now() < sent_at + self.ttl => {
                    (sent_at, renewals) = (renewal_sent_at, renewals + 1);
                }
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let until = clock::now().min(sent_at + self.ttl);
        self.note(record, began_at, until);
        if !ends.load(Ordering::SeqCst) {
            self.release(connection)?;
            std::thread::sleep(self.rests);
        }
        result
    }

    fn note(&self, record: &Mutex<Record>, from: Moment, until: Moment) {
        let acting =
            Acting { resource: self.key.clone(), who: self.id.clone(), token: None, from, until };
        record.lock().expect("no holder of the record panics").add(acting);
    }

    fn try_to_acquire(&self, connection: &mut Connection) -> RedisResult<bool> {
        let mut command = redis::cmd("SET");
        command.arg(&self.key).arg(&self.id).arg("NX").arg("PX").arg(self.ttl_millis());
        Ok(command.query::<Option<String>>(connection)?.is_some())
    }

    fn renew(&self, connection: &mut Connection) -> RedisResult<bool> {
        match self.habit {
            Habit::Sovereign | Habit::TitanAas => {
                let seen: Option<String> = connection.get(&self.key)?;
                if seen.as_ref() != Some(&self.id) {
                    return Ok(false);
                }
                std::thread::sleep(self.dawdles);
                let _: i64 = connection.pexpire(&self.key, self.ttl_millis())?;
                Ok(true)
            }
            Habit::Honua => self.script(
                connection,
                "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                 return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0",
            ),
        }
    }

    fn release(&self, connection: &mut Connection) -> RedisResult<()> {
        if self.habit == Habit::Sovereign {
            let seen: Option<String> = connection.get(&self.key)?;
            if seen.as_ref() == Some(&self.id) {
                std::thread::sleep(self.dawdles);
                let _: i64 = connection.del(&self.key)?;
            }
            return Ok(());
        }
        self.script(
            connection,
            "if redis.call('GET', KEYS[1]) == ARGV[1] then \
             return redis.call('DEL', KEYS[1]) end return 0",
        )?;
        Ok(())
    }

    fn script(&self, connection: &mut Connection, text: &str) -> RedisResult<bool> {
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(1).arg(&self.key).arg(&self.id).arg(self.ttl_millis());
        Ok(command.query::<i64>(connection)? == 1)
    }

    fn ttl_millis(&self) -> i64 {
        self.ttl.as_millis() as i64
    }
}

/// A rival at work. Dropping it ends it.
#[derive(Debug)]
pub struct RunningRival {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RunningRival {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
