//! Which data a server has: the id of a history, and how many of its bytes.
//!
//! Two servers with the same id and the same offset have the same data. Everything here exists to
//! keep that sentence true.

use std::fmt;

/// Characters of an id, and of the mark behind a payload of unknown length.
pub const ID_LEN: usize = 40;

type Fill = dyn FnMut(&mut [u8]) + Send;

/// Where unpredictable bytes come from. Marks must not be guessable by clients that store data.
pub struct Secrets(Box<Fill>);

impl Secrets {
    /// `fill` overwrites all bytes that it is given.
    pub fn new(fill: impl FnMut(&mut [u8]) + Send + 'static) -> Self {
        Self(Box::new(fill))
    }

    /// Forty hexadecimal digits.
    pub(crate) fn digits(&mut self) -> [u8; ID_LEN] {
        let mut bytes = [0; ID_LEN / 2];
        (self.0)(&mut bytes);
        let mut digits = [0; ID_LEN];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        digits
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// The name of a history. Peers may write its digits in either case; ours are lower case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicationId([u8; ID_LEN]);

impl ReplicationId {
    /// From what a peer or a file says. `None` unless it is forty printable characters.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let id: [u8; ID_LEN] = text.try_into().ok()?;
        id.iter().all(u8::is_ascii_graphic).then(|| Self(id.map(|c| c.to_ascii_lowercase())))
    }

    /// A new one that nobody else has.
    pub fn draw(secrets: &mut Secrets) -> Self {
        Self(secrets.digits())
    }

    /// The forty characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("only printable ASCII gets in")
    }
}

impl fmt::Debug for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ReplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The history that ours began with, up to the byte where ours became another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondHistory {
    /// Its name.
    pub id: ReplicationId,
    /// How many of its bytes are also ours. `second_repl_offset` of INFO is one more.
    pub until: u64,
}

/// What a server's data is: the first `offset` bytes of history `id`.
///
/// ```text
/// shift   a replica is promoted: the old id holds for what both have   id ─► second, new id
/// adopt   the primary continues under another id                       id ─► second, its id
/// renew   no history that others know describes the data any more      new id, no second
/// replace the data is a primary's, whole                               its id, no second
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    id: ReplicationId,
    offset: u64,
    second: Option<SecondHistory>,
}

impl History {
    /// A history of its own, without a byte.
    pub fn new(id: ReplicationId) -> Self {
        Self { id, offset: 0, second: None }
    }

    /// Its name.
    pub fn id(&self) -> ReplicationId {
        self.id
    }

    /// How many of its bytes the data has.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The history before the last promotion, if that still describes a part of ours.
    pub fn second(&self) -> Option<SecondHistory> {
        self.second
    }

    /// `len` more bytes have been applied or written.
    pub fn grow(&mut self, len: usize) {
        self.offset += len as u64;
    }

    /// This server goes its own way from here on, under `id`.
    pub fn shift(&mut self, id: ReplicationId) {
        self.second = Some(SecondHistory { id: self.id, until: self.offset });
        self.id = id;
    }

    /// The primary goes on under `id`; with the same one nothing changes. What was the second
    /// history before is given up: there is room for one.
    pub fn adopt(&mut self, id: ReplicationId) {
        if id != self.id {
            self.shift(id);
        }
    }

    /// What others know under the old names is not what this server has, or will not be.
    pub fn renew(&mut self, id: ReplicationId) {
        self.id = id;
        self.second = None;
    }

    /// The data was replaced by `offset` bytes of `id`.
    pub fn replace(&mut self, id: ReplicationId, offset: u64) {
        *self = Self { id, offset, second: None };
    }

    /// Whether the first `offset` bytes of `id` are also ours.
    pub fn includes(&self, id: ReplicationId, offset: u64) -> bool {
        let is_own = id == self.id && offset <= self.offset;
        is_own || self.second.is_some_and(|second| id == second.id && offset <= second.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(letter: char) -> ReplicationId {
        ReplicationId::parse(letter.to_string().repeat(ID_LEN).as_bytes()).unwrap()
    }

    #[test]
    fn a_promoted_replica_shares_its_past_and_not_its_future() {
        let mut history = History::new(id('a'));
        history.grow(100);
        history.shift(id('b'));
        history.grow(50);
        assert!(history.includes(id('a'), 100) && history.includes(id('b'), 150));
        assert!(!history.includes(id('a'), 101), "its old primary may have written on");
        assert!(!history.includes(id('b'), 151), "nobody has what was not written");
    }

    #[test]
    fn a_renewed_history_is_nobody_elses() {
        let mut history = History::new(id('a'));
        history.grow(9);
        history.shift(id('b'));
        history.renew(id('c'));
        assert!(!history.includes(id('a'), 0) && !history.includes(id('b'), 0));
        assert!(history.includes(id('c'), 9));
    }

    #[test]
    fn the_same_id_continues_without_a_second() {
        let mut history = History::new(id('a'));
        history.adopt(id('a'));
        assert_eq!(history.second(), None);
        history.adopt(id('b'));
        assert_eq!(history.second(), Some(SecondHistory { id: id('a'), until: 0 }));
    }

    #[test]
    fn ids_are_read_in_either_case_and_nothing_else_is() {
        let text = "ABCDEFabcdef0123456789012345678901234567";
        assert_eq!(ReplicationId::parse(text.as_bytes()).unwrap().as_str(), text.to_lowercase());
        for bad in [&b"?"[..], &[b'a'; 39], &[b'a'; 41], &[b' '; 40], &[0xff; 40]] {
            assert_eq!(ReplicationId::parse(bad), None);
        }
    }

    #[test]
    fn secrets_become_digits() {
        let mut secrets = Secrets::new(|bytes| bytes.fill(0xa7));
        assert_eq!(ReplicationId::draw(&mut secrets).as_str(), "a7".repeat(20));
    }
}
