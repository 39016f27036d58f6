//! A small store: enough to tell whether two servers have the same data, and why not.

use std::collections::BTreeMap;

use store_resp::{OwnedRequest, Request, parse_integer};

/// Databases of a server.
pub(crate) const DATABASES: usize = 3;

/// A key.
pub(crate) type Key = u8;

/// One change, with the number of the client's write that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) write: u32,
    pub(crate) key: Key,
    pub(crate) kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// A value of this many bytes, which may end at a unix time.
    Set {
        padding: usize,
        expires_at: Option<u64>,
    },
    /// Depends on what is there: applied twice, it shows.
    Increment,
    Delete,
}

impl Change {
    /// The request that repeats it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (name, first, second) = match self.kind {
            ChangeKind::Set { padding, expires_at } => {
                ("SET", "x".repeat(padding), expires_at.unwrap_or(0).to_string())
            }
            ChangeKind::Increment => ("INCR", String::new(), String::new()),
            ChangeKind::Delete => ("DEL", String::new(), String::new()),
        };
        let words = [name, &self.key.to_string(), &self.write.to_string(), &first, &second];
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` for requests that change nothing.
    pub(crate) fn decode(request: Request<'_>) -> Option<Self> {
        let number = |index| request.get(index).and_then(parse_integer);
        let kind = match request.arg(0) {
            b"SET" => ChangeKind::Set {
                padding: request.arg(3).len(),
                expires_at: number(4).map(|at| at as u64).filter(|at| *at > 0),
            },
            b"INCR" => ChangeKind::Increment,
            b"DEL" => ChangeKind::Delete,
            _ => return None,
        };
        Some(Self { key: number(1)? as Key, write: number(2)? as u32, kind })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    number: u64,
    padding: usize,
    pub(crate) expires_at: Option<u64>,
}

/// What is in a server, in two numbers: keys that stay, and keys that end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) steady: u64,
    pub(crate) volatile: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    keys: BTreeMap<(usize, Key), Entry>,
    digest: Digest,
    /// Which writes were ever applied to it, a bit each.
    writes: Vec<u64>,
}

impl Data {
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    pub(crate) fn has_write(&self, write: u32) -> bool {
        let word = self.writes.get(write as usize / 64).copied().unwrap_or(0);
        word >> (write % 64) & 1 == 1
    }

    pub(crate) fn get(&self, db: usize, key: Key) -> Option<Entry> {
        self.keys.get(&(db, key)).copied()
    }

    /// Keys that have ended by `wall`.
    pub(crate) fn expired(&self, wall: u64) -> Vec<(usize, Key)> {
        let is_over = |entry: &Entry| entry.expires_at.is_some_and(|at| at <= wall);
        self.keys.iter().filter(|(_, entry)| is_over(entry)).map(|(place, _)| *place).collect()
    }

    /// Leaves keys out that have ended by `wall`.
    pub(crate) fn drop_ended(&mut self, wall: u64) {
        for place in self.expired(wall) {
            self.put(place, None);
        }
    }

    pub(crate) fn apply(&mut self, db: usize, change: &Change) {
        let before = self.keys.get(&(db, change.key)).copied();
        let write = u64::from(change.write);
        let after = match change.kind {
            ChangeKind::Set { padding, expires_at } => {
                Some(Entry { number: write, padding, expires_at })
            }
            ChangeKind::Increment => {
                let old = before.unwrap_or(Entry { number: 0, padding: 0, expires_at: None });
                Some(Entry { number: mix(old.number, write), ..old })
            }
            ChangeKind::Delete => None,
        };
        self.put((db, change.key), after);
        let word = change.write as usize / 64;
        self.writes.resize(self.writes.len().max(word + 1), 0);
        self.writes[word] |= 1 << (change.write % 64);
    }

    fn put(&mut self, place: (usize, Key), entry: Option<Entry>) {
        let before = match entry {
            Some(entry) => self.keys.insert(place, entry),
            None => self.keys.remove(&place),
        };
        for entry in before.into_iter().chain(entry) {
            let part = hash(place, &entry);
            match entry.expires_at {
                Some(_) => self.digest.volatile ^= part,
                None => self.digest.steady ^= part,
            }
        }
    }

    /// Everything as bytes, with the database that the stream has selected.
    pub(crate) fn encode(&self, db: usize) -> Vec<u8> {
        let mut words: Vec<u64> = vec![db as u64, self.writes.len() as u64];
        words.extend(&self.writes);
        let mut size = 0;
        for ((db, key), entry) in &self.keys {
            words.extend([*db as u64, u64::from(*key), entry.number, entry.padding as u64]);
            words.push(entry.expires_at.unwrap_or(0));
            size += entry.padding;
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // What a value weighs, it weighs on the wire, too.
        bytes.resize(bytes.len() + size.next_multiple_of(8), 0xff);
        let sum = bytes.iter().fold(0, |sum, byte| mix(sum, u64::from(*byte)));
        bytes.extend((words.len() as u64).to_le_bytes());
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` when something is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (body, tail) = bytes.split_at_checked(bytes.len().checked_sub(16)?)?;
        let (words, _) = body.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let count = u64::from_le_bytes(tail[..8].try_into().ok()?) as usize;
        let sum = body.iter().fold(0, |sum, byte| mix(sum, u64::from(*byte)));
        if tail[8..] != sum.to_le_bytes() {
            return None;
        }
        let words = words.get(..count)?;
        let writes = *words.get(1)? as usize;
        let mut data = Self { writes: words.get(2..2 + writes)?.to_vec(), ..Self::default() };
        for entry in words[2 + writes..].as_chunks::<5>().0 {
            let [db, key, number, padding, expires_at] = *entry;
            let expires_at = Some(expires_at).filter(|at| *at > 0);
            let entry = Entry { number, padding: padding as usize, expires_at };
            data.put((db as usize, key as Key), Some(entry));
        }
        Some((data, words[0] as usize))
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let word = (a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(23);
    word.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (word >> 29)
}

fn hash((db, key): (usize, Key), entry: &Entry) -> u64 {
    let place = mix(db as u64 + 1, u64::from(key));
    mix(mix(mix(place, entry.number), entry.padding as u64), entry.expires_at.unwrap_or(0))
}

/// The session that applies a primary's stream.
#[derive(Debug, Default)]
pub(crate) struct LinkSession {
    pub(crate) db: usize,
    pub(crate) queued: Option<Vec<OwnedRequest>>,
}

/// What a request of the stream asks of a server beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aside {
    Nothing,
    Acknowledge,
}

impl LinkSession {
    /// Applies one request of the stream.
    pub(crate) fn run(&mut self, data: &mut Data, request: Request<'_>) -> Aside {
        match request.arg(0) {
            b"MULTI" => self.queued = Some(Vec::new()),
            b"EXEC" => {
                for request in self.queued.take().unwrap_or_default() {
                    self.run(data, request.as_request());
                }
            }
            _ if self.queued.is_some() => {
                self.queued.get_or_insert_default().push(request.to_owned());
            }
            b"SELECT" => {
                let db = request.get(1).and_then(parse_integer).unwrap_or(0) as usize;
                self.db = db.min(DATABASES - 1);
            }
            b"REPLCONF" => return Aside::Acknowledge,
            _ => {
                if let Some(change) = Change::decode(request) {
                    data.apply(self.db, &change);
                }
            }
        }
        Aside::Nothing
    }
}
