//! One MIGRATE: keys that move to another server over one connection.
//!
//! ```text
//! Connecting ─► Greeting: AUTH, SELECT ─► Moving: a RESTORE per key ─► Done
//!     ▲             └─────────────────────────┤ lost, once and before any key was answered
//!     └───────────────────────────────────────┘
//! ```
//! What must stay true: a key goes from here only when the other server has said that it has it.
//! When nothing is known of a key, because the connection was lost or took too long, it stays, and
//! what stays here counts. So a key may be on both sides, and is never on neither.
//!
//! Redis sends AUTH, SELECT and the keys at once, so that a refused SELECT puts keys into another
//! database. Here the keys wait for both answers.

use std::collections::VecDeque;
use std::fmt;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationOrder {
    /// Keys that were there, none twice.
    pub keys: Vec<Vec<u8>>,
    /// The database that they go to.
    pub db: i64,
    /// Whether they stay here as well.
    pub copies: bool,
    /// How long nothing may happen, in milliseconds.
    pub timeout_ms: u64,
    /// What to log in with.
    pub credentials: Option<Credentials>,
}

/// A password, with a user or without.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Credentials {
    /// Without one, the default user.
    pub user: Option<Vec<u8>>,
    /// The password.
    pub password: Vec<u8>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// What is to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationOutput {
    /// Connect, or take a connection that was kept unless it must be a new one. The answer is
    /// [`handle_connected`](Migration::handle_connected) or
    /// [`handle_lost`](Migration::handle_lost).
    Connect {
        /// One that was kept turned out to be of no use.
        is_fresh: bool,
    },
    /// Send this request.
    Send(Vec<Vec<u8>>),
    /// The other server has the key: remove it here, and propagate that.
    Moved(Vec<u8>),
    /// The key stays here.
    Stays(Vec<u8>),
    /// It is over. Nothing follows.
    Finish {
        /// What to answer.
        end: MigrationEnd,
        /// Whether the connection can be used again: all that was asked for is answered.
        keeps_connection: bool,
    },
}

/// How a migration ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationEnd {
    /// The other server has all keys.
    Moved,
    /// The other server refused at least one of them, with this text.
    Refused(String),
    /// It cannot be reached.
    CannotConnect,
    /// The connection was lost, or nothing happened for too long.
    Lost {
        /// Whether everything had been sent.
        is_sent: bool,
    },
}

/// Why a connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The name is not known, or nobody answers.
    Unreachable,
    /// The other end closed it, or refused it.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Greeting,
    Moving,
    Done,
}

/// What the other server has yet to answer.
#[derive(Debug)]
enum Awaited {
    Greeting,
    Key(Vec<u8>),
}

/// One MIGRATE under way. Moments are milliseconds of a clock that nobody sets.
#[derive(Debug)]
pub struct Migration {
    order: MigrationOrder,
    phase: Phase,
    /// Keys that this connection has yet to get.
    unsent: VecDeque<Vec<u8>>,
    awaited: VecDeque<Awaited>,
    /// A key was handed out, and its value is not ready to be sent.
    is_preparing: bool,
    may_retry: bool,
    refusal: Option<String>,
    /// When something last happened.
    moved_at_ms: u64,
    outputs: VecDeque<MigrationOutput>,
    #[cfg(feature = "flaws")]
    removes_early: bool,
}

impl Migration {
    /// Begins by connecting.
    pub fn new(now_ms: u64, order: MigrationOrder) -> Self {
        Self {
            phase: Phase::Connecting,
            unsent: order.keys.iter().cloned().collect(),
            order,
            awaited: VecDeque::new(),
            is_preparing: false,
            may_retry: true,
            refusal: None,
            moved_at_ms: now_ms,
            outputs: VecDeque::from([MigrationOutput::Connect { is_fresh: false }]),
            #[cfg(feature = "flaws")]
            removes_early: false,
        }
    }

    /// From now on keys are removed when they are sent, which breaks the promise.
    #[cfg(feature = "flaws")]
    pub fn remove_early(&mut self) {
        self.removes_early = true;
    }

    /// What was asked for.
    pub fn order(&self) -> &MigrationOrder {
        &self.order
    }

    /// What is to be done next; `None` until something happens.
    pub fn poll_output(&mut self) -> Option<MigrationOutput> {
        self.outputs.pop_front()
    }

    /// When [`handle_time`](Self::handle_time) is wanted.
    pub fn wakes_at_ms(&self) -> Option<u64> {
        let waits = self.phase != Phase::Done && !self.is_preparing;
        waits.then(|| self.moved_at_ms.saturating_add(self.order.timeout_ms))
    }

    /// There is a connection, and this is the database that it has selected, if it is known.
    pub fn handle_connected(&mut self, now_ms: u64, db: Option<i64>) {
        if self.phase != Phase::Connecting {
            return;
        }
        self.moved_at_ms = now_ms;
        if let Some(Credentials { user, password }) = self.order.credentials.clone() {
            let words = [Some(b"AUTH".to_vec()), user, Some(password)];
            self.greet(words.into_iter().flatten().collect());
        }
        if db != Some(self.order.db) {
            self.greet(vec![b"SELECT".to_vec(), self.order.db.to_string().into_bytes()]);
        }
        self.phase = if self.awaited.is_empty() { Phase::Moving } else { Phase::Greeting };
    }

    fn greet(&mut self, words: Vec<Vec<u8>>) {
        self.outputs.push_back(MigrationOutput::Send(words));
        self.awaited.push_back(Awaited::Greeting);
    }

    /// The next key to send, when the last one is ready. The driver says
    /// [`handle_prepared`](Self::handle_prepared) when it has sent it, or
    /// [`handle_gone`](Self::handle_gone) when there is no such key any more.
    pub fn next_key(&mut self) -> Option<Vec<u8>> {
        if self.phase != Phase::Moving || self.is_preparing {
            return None;
        }
        let key = self.unsent.pop_front()?;
        self.is_preparing = true;
        self.awaited.push_back(Awaited::Key(key.clone()));
        Some(key)
    }

    /// The key that was handed out is being sent.
    pub fn handle_prepared(&mut self, now_ms: u64) {
        self.is_preparing = false;
        self.moved_at_ms = now_ms;
        #[cfg(feature = "flaws")]
        if self.removes_early
            && let Some(Awaited::Key(key)) = self.awaited.back()
        {
            self.outputs.push_back(MigrationOutput::Moved(key.clone()));
        }
    }

    /// The key that was handed out ended meanwhile.
    pub fn handle_gone(&mut self, now_ms: u64) {
        self.is_preparing = false;
        self.moved_at_ms = now_ms;
        if let Some(Awaited::Key(key)) = self.awaited.pop_back() {
            self.outputs.push_back(MigrationOutput::Stays(key));
        }
        self.finish_if_answered();
    }

    /// The connection took some bytes.
    pub fn handle_sent(&mut self, now_ms: u64) {
        self.moved_at_ms = now_ms;
    }

    /// The other server answered what was asked first: with this text if it refused.
    pub fn handle_reply(&mut self, now_ms: u64, refusal: Option<&str>) {
        if self.phase == Phase::Done {
            return;
        }
        self.moved_at_ms = now_ms;
        match self.awaited.pop_front() {
            None => self.finish(MigrationEnd::Lost { is_sent: true }, Keeps::Nothing),
            Some(Awaited::Greeting) => match refusal {
                Some(text) => {
                    let end = MigrationEnd::Refused(self.refusal.take().unwrap_or(text.to_owned()));
                    self.finish(end, Keeps::Nothing);
                }
                None if self.awaited.is_empty() => self.phase = Phase::Moving,
                None => {}
            },
            Some(Awaited::Key(key)) => {
                self.may_retry = false;
                match refusal {
                    Some(text) => {
                        self.refusal.get_or_insert_with(|| text.to_owned());
                        self.outputs.push_back(MigrationOutput::Stays(key));
                    }
                    None => self.outputs.push_back(MigrationOutput::Moved(key)),
                }
                self.finish_if_answered();
            }
        }
    }

    /// The connection is gone, or there is none to be had.
    pub fn handle_lost(&mut self, now_ms: u64, loss: Loss) {
        if self.phase == Phase::Done {
            return;
        }
        if self.may_retry {
            self.may_retry = false;
            self.moved_at_ms = now_ms;
            self.is_preparing = false;
            self.phase = Phase::Connecting;
            for awaited in std::mem::take(&mut self.awaited).into_iter().rev() {
                if let Awaited::Key(key) = awaited {
                    self.unsent.push_front(key);
                }
            }
            return self.outputs.push_back(MigrationOutput::Connect { is_fresh: true });
        }
        let is_sent = self.phase != Phase::Connecting && self.unsent.is_empty();
        let end = match loss {
            Loss::Unreachable => MigrationEnd::CannotConnect,
            Loss::Closed => MigrationEnd::Lost { is_sent },
        };
        self.finish(end, Keeps::Nothing);
    }

    /// Time has passed: ends it if nothing happened for too long. It may go on over there, so this
    /// is not tried again.
    pub fn handle_time(&mut self, now_ms: u64) {
        if self.wakes_at_ms().is_none_or(|at| now_ms < at) {
            return;
        }
        let end = match self.phase {
            Phase::Connecting => MigrationEnd::CannotConnect,
            _ => MigrationEnd::Lost { is_sent: self.unsent.is_empty() },
        };
        self.finish(end, Keeps::Nothing);
    }

    /// Ends it now: what is not known to have moved stays.
    pub fn give_up(&mut self) {
        if self.phase != Phase::Done {
            let is_sent = self.unsent.is_empty();
            self.finish(MigrationEnd::Lost { is_sent }, Keeps::Nothing);
        }
    }

    fn finish_if_answered(&mut self) {
        if self.unsent.is_empty() && self.awaited.is_empty() {
            let end = self.refusal.take().map_or(MigrationEnd::Moved, MigrationEnd::Refused);
            self.finish(end, Keeps::Connection);
        }
    }

    fn finish(&mut self, end: MigrationEnd, keeps: Keeps) {
        self.phase = Phase::Done;
        let awaited = std::mem::take(&mut self.awaited).into_iter();
        let unanswered = awaited.filter_map(|awaited| match awaited {
            Awaited::Key(key) => Some(key),
            Awaited::Greeting => None,
        });
        let stay = unanswered.chain(std::mem::take(&mut self.unsent));
        self.outputs.extend(stay.map(MigrationOutput::Stays));
        let keeps_connection = keeps == Keeps::Connection;
        self.outputs.push_back(MigrationOutput::Finish { end, keeps_connection });
    }
}

/// What is left of a migration that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    Connection,
    Nothing,
}

impl fmt::Display for MigrationEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MigrationEnd::Moved => f.write_str("OK"),
            MigrationEnd::Refused(text) => {
                write!(f, "ERR Target instance replied with error: {text}")
            }
            MigrationEnd::CannotConnect => {
                f.write_str("IOERR error or timeout connecting to the client")
            }
            MigrationEnd::Lost { is_sent: false } => {
                f.write_str("IOERR error or timeout writing to target instance")
            }
            MigrationEnd::Lost { is_sent: true } => {
                f.write_str("IOERR error or timeout reading to target instance")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(keys: &[&str]) -> MigrationOrder {
        MigrationOrder {
            keys: keys.iter().map(|key| key.as_bytes().to_vec()).collect(),
            db: 0,
            copies: false,
            timeout_ms: 100,
            credentials: None,
        }
    }

    /// A migration that is connected, with nothing to be done.
    fn connected(keys: &[&str]) -> Migration {
        let mut migration = Migration::new(0, order(keys));
        let output = migration.poll_output();
        assert_eq!(output, Some(MigrationOutput::Connect { is_fresh: false }));
        migration.handle_connected(1, Some(0));
        migration
    }

    fn send(migration: &mut Migration) -> Option<Vec<u8>> {
        let key = migration.next_key()?;
        migration.handle_prepared(2);
        Some(key)
    }

    fn outputs(migration: &mut Migration) -> Vec<MigrationOutput> {
        std::iter::from_fn(|| migration.poll_output()).collect()
    }

    fn finish(end: MigrationEnd, keeps_connection: bool) -> MigrationOutput {
        MigrationOutput::Finish { end, keeps_connection }
    }

    #[test]
    fn a_key_goes_when_the_other_server_has_it_and_not_before() {
        let mut migration = connected(&["a", "b"]);
        assert_eq!(send(&mut migration), Some(b"a".to_vec()));
        assert_eq!(send(&mut migration), Some(b"b".to_vec()));
        assert!(outputs(&mut migration).is_empty());
        migration.handle_reply(3, None);
        assert_eq!(outputs(&mut migration), [MigrationOutput::Moved(b"a".to_vec())]);
        migration.handle_reply(4, Some("BUSYKEY taken"));
        let refused = MigrationEnd::Refused("BUSYKEY taken".to_owned());
        let stays = MigrationOutput::Stays(b"b".to_vec());
        assert_eq!(outputs(&mut migration), [stays, finish(refused, true)]);
    }

    #[test]
    fn keys_wait_until_the_login_and_the_database_are_accepted() {
        let mut order = order(&["a"]);
        order.credentials = Some(Credentials { user: None, password: b"pw".to_vec() });
        order.db = 3;
        let mut migration = Migration::new(0, order);
        migration.handle_connected(1, Some(0));
        let sent = outputs(&mut migration);
        assert!(matches!(&sent[1], MigrationOutput::Send(words) if words[0] == b"AUTH"));
        assert!(matches!(&sent[2], MigrationOutput::Send(words) if words[1] == b"3"));
        assert_eq!(migration.next_key(), None);
        migration.handle_reply(2, None);
        migration.handle_reply(2, Some("ERR DB index is out of range"));
        migration.handle_reply(2, Some("ERR what comes later does not matter"));
        let last = outputs(&mut migration);
        assert_eq!(last[0], MigrationOutput::Stays(b"a".to_vec()));
        assert!(
            last[1] == finish(MigrationEnd::Refused("ERR DB index is out of range".into()), false)
        );
    }

    #[test]
    fn a_connection_that_was_lost_is_replaced_once_and_before_an_answer() {
        let mut migration = connected(&["a", "b"]);
        send(&mut migration);
        send(&mut migration);
        migration.handle_lost(3, Loss::Closed);
        assert_eq!(outputs(&mut migration), [MigrationOutput::Connect { is_fresh: true }]);
        migration.handle_connected(4, Some(0));
        assert_eq!(send(&mut migration), Some(b"a".to_vec()), "in the same order");
        migration.handle_reply(5, None);
        migration.handle_lost(6, Loss::Closed);
        let expected = [
            MigrationOutput::Moved(b"a".to_vec()),
            MigrationOutput::Stays(b"b".to_vec()),
            finish(MigrationEnd::Lost { is_sent: false }, false),
        ];
        assert_eq!(outputs(&mut migration), expected);
    }

    #[test]
    fn what_takes_too_long_stays_and_is_not_tried_again() {
        let mut migration = connected(&["a"]);
        assert_eq!(migration.next_key(), Some(b"a".to_vec()));
        assert_eq!(migration.wakes_at_ms(), None, "a large value takes its time to be encoded");
        migration.handle_prepared(500);
        migration.handle_time(599);
        assert!(outputs(&mut migration).is_empty());
        migration.handle_time(600);
        let lost = finish(MigrationEnd::Lost { is_sent: true }, false);
        assert_eq!(outputs(&mut migration), [MigrationOutput::Stays(b"a".to_vec()), lost]);
    }
}
