//! A file of any version, record by record.

use std::borrow::Cow;
use std::io::{self, Read};

use store_types::Damaged;
use store_types::Limits;
use store_types::crc64::crc64;
use store_types::dump::{LoadError, Reader, Value, load_value};

use super::error::{Fault, RdbError, describe_key};
use super::part::Access;
use super::{CHECKSUM_SINCE, MAGIC, VERSION, opcode};

/// Read at once: a few thousand small entries.
const READ_BYTES: usize = 1024 * 1024;
/// A string of this length or more is not copied out of the buffer: the buffer becomes it.
const LARGE_LEN: usize = 2 * READ_BYTES;
/// Room that is made at once for a string by the length that the file tells, which may be false.
/// It is the largest that clients can send, and costs nothing before bytes come.
const ROOM_MAX: u64 = 512 * 1024 * 1024;
/// The type of a string.
const TEXT: u8 = 0;

/// One record of a file.
#[derive(Debug)]
pub enum Item {
    /// A fact about the file, such as who wrote it.
    Fact {
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// The text of a function library.
    Function(Vec<u8>),
    /// How many keys to expect in a database: a hint.
    Sizes {
        /// The database.
        db: u64,
        /// All its keys.
        keys: u64,
        /// Those that end.
        volatile: u64,
    },
    /// A key with its value.
    Entry(LoadedEntry),
    /// A collection without elements, which some versions have saved by mistake.
    EmptyKey(Vec<u8>),
    /// Data that a module keeps beside the keys; skipped.
    ModuleFact(String),
}

/// A key with its value.
#[derive(Debug)]
pub struct LoadedEntry {
    /// Its database, which need not exist.
    pub db: u64,
    /// Its key.
    pub key: Vec<u8>,
    /// When it ends, in unix milliseconds.
    pub expires_at: Option<u64>,
    /// What is remembered of its accesses.
    pub access: Access,
    /// Its value.
    pub value: Value,
}

/// The next record of a file, with strings where they were read to: they are most of what there
/// is, and those who copy them anyway need no copy before that.
#[derive(Debug)]
pub enum Record<'a> {
    /// A key whose value is a string.
    Text(TextEntry<'a>),
    /// Any other record.
    Item(Item),
}

/// A key whose value is a string.
#[derive(Debug)]
pub struct TextEntry<'a> {
    /// Its database, which need not exist.
    pub db: u64,
    /// Its key.
    pub key: Cow<'a, [u8]>,
    /// When it ends, in unix milliseconds.
    pub expires_at: Option<u64>,
    /// What is remembered of its accesses.
    pub access: Access,
    /// Its value.
    pub value: Cow<'a, [u8]>,
}

impl From<TextEntry<'_>> for LoadedEntry {
    fn from(entry: TextEntry<'_>) -> Self {
        let TextEntry { db, key, expires_at, access, value } = entry;
        let value = Value::String(value.into_owned());
        Self { db, key: key.into_owned(), expires_at, access, value }
    }
}

/// A string that was parsed: where it lies in the buffer, counted from its end, or its bytes.
enum Piece {
    Lies { before_end: usize, len: usize },
    Owned(Vec<u8>),
}

impl Piece {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, LoadError> {
        Ok(match reader.string()? {
            Cow::Borrowed(bytes) => {
                Self::Lies { before_end: reader.rest().len() + bytes.len(), len: bytes.len() }
            }
            Cow::Owned(bytes) => Self::Owned(bytes),
        })
    }

    fn of(self, buffer: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Lies { before_end, len } => {
                let start = buffer.len() - before_end;
                Cow::Borrowed(&buffer[start..start + len])
            }
            Self::Owned(bytes) => Cow::Owned(bytes),
        }
    }
}

/// Reads a file from its first byte. Holds the largest value and one read in memory. No length
/// in the file is believed before that many bytes have been seen, except that room without
/// anything in it is made for one string.
pub struct FileReader<R> {
    input: R,
    limits: Limits,
    version: u16,
    db: u64,
    /// Bytes read, of which those before `at` are done with and those before `summed` are in
    /// the checksum.
    buffer: Vec<u8>,
    at: usize,
    summed: usize,
    checksum: u64,
    /// Where in the file the buffer begins.
    buffer_offset: u64,
    is_ended: bool,
    /// Whether the checksum must be right.
    verifies: bool,
    mended: Mended,
}

/// Values of a file that contradicted themselves and were made whole, as redis-server takes them:
/// see [`Reader::forgiving`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// How many.
    pub values: u64,
    /// The first of them, and what was wrong with it.
    pub first: Option<String>,
}

impl Mended {
    fn note(&mut self, key: &[u8], fault: Damaged) {
        self.values += 1;
        self.first.get_or_insert_with(|| format!("{}: {fault}", describe_key(key)));
    }
}

/// What the bytes before a key tell about it.
#[derive(Default)]
struct KeyHead {
    expires_at: Option<u64>,
    access: Access,
}

impl<R: Read> FileReader<R> {
    /// Reads the head of a file.
    ///
    /// # Errors
    /// [`RdbError`] when it is no such file, or of a version that is not known.
    pub fn begin(input: R, limits: Limits) -> Result<Self, RdbError> {
        let mut file = Self {
            input,
            limits,
            version: 0,
            db: 0,
            buffer: Vec::new(),
            at: 0,
            summed: 0,
            checksum: 0,
            buffer_offset: 0,
            is_ended: false,
            verifies: true,
            mended: Mended::default(),
        };
        let head: [u8; 9] = match file.parse(|reader| reader.array()) {
            Err(RdbError::Damaged { .. }) => return Err(file.damaged(Fault::NoRdb)),
            other => other?,
        };
        let (magic, digits) = head.split_at(MAGIC.len());
        let digits = std::str::from_utf8(digits).ok().filter(|_| magic == MAGIC);
        let version = digits.and_then(|digits| digits.parse::<u16>().ok());
        file.version = match version {
            None => return Err(file.damaged_at(0, Fault::NoRdb)),
            Some(version) if (1..=VERSION).contains(&version) => version,
            Some(version) => return Err(file.damaged_at(0, Fault::Version(version))),
        };
        Ok(file)
    }

    /// Says whether the checksum at the end must be that of the bytes (`rdbchecksum`); it must
    /// unless somebody says otherwise.
    pub fn verify_checksum(&mut self, verifies: bool) {
        self.verifies = verifies;
    }

    /// What was made whole so far.
    pub fn mended(&self) -> &Mended {
        &self.mended
    }

    /// The version of the file.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// How many bytes of the file are done with.
    pub fn offset(&self) -> u64 {
        self.buffer_offset + self.at as u64
    }

    /// The next record; `None` behind the last, once the checksum was found to be right.
    ///
    /// # Errors
    /// [`RdbError`]; reading on makes no sense then.
    pub fn next_item(&mut self) -> Result<Option<Item>, RdbError> {
        Ok(self.next_record()?.map(|record| match record {
            Record::Text(entry) => Item::Entry(entry.into()),
            Record::Item(item) => item,
        }))
    }

    /// The same, without copies of strings.
    ///
    /// # Errors
    /// As [`next_item`](Self::next_item).
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, RdbError> {
        let mut head = KeyHead::default();
        while !self.is_ended {
            match self.parse(|reader| reader.byte())? {
                opcode::END => {
                    self.is_ended = true;
                    self.check_end()?;
                }
                opcode::SELECT_DB => self.db = self.parse(|reader| reader.length())?,
                opcode::EXPIRE_TIME_MS => {
                    // Redis keeps "no end" as -1, and takes it for that when it reads it.
                    let unix_ms = self.parse(|reader| reader.milliseconds())?;
                    head.expires_at = (unix_ms != -1).then(|| moment(unix_ms));
                }
                opcode::EXPIRE_TIME => {
                    let seconds = i32::from_le_bytes(self.parse(|reader| reader.array())?);
                    head.expires_at = Some(moment(i64::from(seconds) * 1000));
                }
                opcode::IDLE => {
                    // More than a signed number holds says nothing, as in Redis.
                    let seconds = self.parse(|reader| reader.length())?;
                    if i64::try_from(seconds).is_ok() {
                        head.access = Access::Idle(seconds);
                    }
                }
                opcode::FREQUENCY => {
                    head.access = Access::Frequency(self.parse(|reader| reader.byte())?)
                }
                code if code >= opcode::FUNCTION => {
                    return self.beside(code).map(|item| Some(Record::Item(item)));
                }
                TEXT => return self.text(head).map(Some),
                code => return self.entry(code, head).map(|item| Some(Record::Item(item))),
            }
        }
        Ok(None)
    }

    /// What follows the file in the same input: the rest of it, and bytes already read from it.
    pub fn into_rest(mut self) -> (R, Vec<u8>) {
        self.buffer.drain(..self.at);
        (self.input, self.buffer)
    }

    /// A record that is no key.
    fn beside(&mut self, code: u8) -> Result<Item, RdbError> {
        match code {
            opcode::AUX => {
                let name = self.parse(owned_string)?;
                let value = self.parse(owned_string)?;
                Ok(Item::Fact { name, value })
            }
            opcode::RESIZE_DB => {
                let (keys, volatile) = self.parse(|r| Ok((r.length()?, r.length()?)))?;
                Ok(Item::Sizes { db: self.db, keys, volatile })
            }
            opcode::FUNCTION => self.parse(owned_string).map(Item::Function),
            opcode::MODULE_AUX => self.parse(skip_module_fact).map(Item::ModuleFact),
            opcode::FUNCTION_PRE_GA => Err(self.damaged(Fault::PreReleaseFunction)),
            unknown => Err(self.damaged(Fault::Record(LoadError::UnknownType(unknown)))),
        }
    }

    /// A key whose value is a string, parsed in one go so that both lie in the buffer in the end.
    fn text(&mut self, head: KeyHead) -> Result<Record<'_>, RdbError> {
        let (key, value) = match self.parse(|r| Ok((Piece::parse(r)?, Piece::parse(r)?))) {
            Ok(both) => both,
            // Once more, for an error that names the key.
            Err(_) => return self.entry(TEXT, head).map(Record::Item),
        };
        let KeyHead { expires_at, access } = head;
        if let Piece::Lies { before_end, len } = value
            && before_end == len
            && len >= LARGE_LEN
        {
            let key = Cow::Owned(key.of(&self.buffer).into_owned());
            let value = Cow::Owned(self.take_last(len));
            return Ok(Record::Text(TextEntry { db: self.db, key, expires_at, access, value }));
        }
        let (key, value) = (key.of(&self.buffer), value.of(&self.buffer));
        Ok(Record::Text(TextEntry { db: self.db, key, expires_at, access, value }))
    }

    /// The last `len` bytes of the buffer, all of which is done with, as the buffer itself.
    fn take_last(&mut self, len: usize) -> Vec<u8> {
        self.sum();
        let mut taken = std::mem::take(&mut self.buffer);
        self.buffer_offset += taken.len() as u64;
        (self.at, self.summed) = (0, 0);
        taken.drain(..taken.len() - len);
        taken
    }

    fn entry(&mut self, code: u8, head: KeyHead) -> Result<Item, RdbError> {
        const MODULE: u8 = 6;
        const MODULE_2: u8 = 7;
        let key = self.parse(owned_string)?;
        if code == MODULE || code == MODULE_2 {
            let module = module_name(self.parse(|reader| reader.length())?);
            return Err(self.damaged(Fault::Module { key, module }));
        }
        let limits = self.limits;
        let (value, mended) = self.parse_with(
            |reader| match load_value(code, reader, &limits) {
                Err(LoadError::Empty) => Ok((None, None)),
                loaded => loaded.map(|value| (Some(value), reader.mended())),
            },
            |error| Fault::Value { key: key.clone(), error },
        )?;
        if let Some(fault) = mended {
            self.mended.note(&key, fault);
        }
        let Some(value) = value else { return Ok(Item::EmptyKey(key)) };
        let KeyHead { expires_at, access } = head;
        Ok(Item::Entry(LoadedEntry { db: self.db, key, expires_at, access, value }))
    }

    fn check_end(&mut self) -> Result<(), RdbError> {
        if self.version < CHECKSUM_SINCE {
            return Ok(());
        }
        self.sum();
        let (offset, expected) = (self.offset(), self.checksum);
        let found = u64::from_le_bytes(self.parse(|reader| reader.array())?);
        // Zero: whoever wrote the file did not compute it.
        if self.verifies && found != 0 && found != expected {
            return Err(self.damaged_at(offset, Fault::Checksum { expected, found }));
        }
        Ok(())
    }

    fn parse<T>(
        &mut self,
        parse: impl Fn(&mut Reader<'_>) -> Result<T, LoadError>,
    ) -> Result<T, RdbError> {
        self.parse_with(parse, Fault::Record)
    }

    /// Parses at the front of the buffer. When that is cut off, reads what lacks, or as much again,
    /// and starts anew: all attempts together take about twice as long as one.
    fn parse_with<T>(
        &mut self,
        parse: impl Fn(&mut Reader<'_>) -> Result<T, LoadError>,
        fault: impl Fn(LoadError) -> Fault,
    ) -> Result<T, RdbError> {
        loop {
            let mut reader = Reader::forgiving(&self.buffer[self.at..]);
            let parsed = parse(&mut reader);
            let stopped_at = self.buffer.len() - reader.rest().len();
            let lacking = reader.lacking();
            match parsed {
                Ok(value) => {
                    self.at = stopped_at;
                    return Ok(value);
                }
                Err(LoadError::Truncated) => {
                    if !self.read_more(lacking)? {
                        let end = self.buffer_offset + self.buffer.len() as u64;
                        return Err(self.damaged_at(end, Fault::Truncated));
                    }
                }
                Err(error) => {
                    let offset = self.buffer_offset + stopped_at as u64;
                    return Err(self.damaged_at(offset, fault(error)));
                }
            }
        }
    }

    /// Reads what lacks, or as much as is held already if that is more, and a good deal at least.
    /// False at the end of the file.
    fn read_more(&mut self, lacking: u64) -> Result<bool, RdbError> {
        self.sum();
        self.buffer.drain(..self.at);
        self.buffer_offset += self.at as u64;
        (self.at, self.summed) = (0, 0);
        let wanted = lacking.max(READ_BYTES.max(self.buffer.len()) as u64);
        self.make_room(wanted);
        let read = self.input.by_ref().take(wanted).read_to_end(&mut self.buffer);
        match read {
            Ok(count) => Ok(count > 0),
            Err(source) => Err(self.unreadable(source)),
        }
    }

    /// Exactly as much room as is wanted: a buffer that grows by itself is there twice while it
    /// does. What a large string needed is not kept for the small ones behind it.
    fn make_room(&mut self, wanted: u64) {
        let room = wanted.min(ROOM_MAX) as usize;
        let kept = self.buffer.len() + room;
        if self.buffer.capacity() > LARGE_LEN.max(2 * kept) {
            self.buffer.shrink_to(kept);
        }
        // Where there is no such room, it grows by what really comes.
        let _ = self.buffer.try_reserve_exact(room);
    }

    fn unreadable(&self, source: io::Error) -> RdbError {
        RdbError::Read { offset: self.buffer_offset + self.buffer.len() as u64, source }
    }

    /// Takes the bytes that are done with into the checksum.
    fn sum(&mut self) {
        if self.version >= CHECKSUM_SINCE || self.version == 0 {
            self.checksum = crc64(self.checksum, &self.buffer[self.summed..self.at]);
        }
        self.summed = self.at;
    }

    fn damaged(&self, fault: Fault) -> RdbError {
        self.damaged_at(self.offset(), fault)
    }

    fn damaged_at(&self, offset: u64, fault: Fault) -> RdbError {
        RdbError::Damaged { offset, fault }
    }
}

fn owned_string(reader: &mut Reader<'_>) -> Result<Vec<u8>, LoadError> {
    reader.string().map(|bytes| bytes.into_owned())
}

/// Moments before 1970 are long past either way.
fn moment(unix_ms: i64) -> u64 {
    u64::try_from(unix_ms).unwrap_or(0)
}

/// Reads over the data of a module, which tells the kind of each piece.
fn skip_module_fact(reader: &mut Reader<'_>) -> Result<String, LoadError> {
    const END: u64 = 0;
    const SIGNED: u64 = 1;
    const UNSIGNED: u64 = 2;
    const FLOAT: u64 = 3;
    const DOUBLE: u64 = 4;
    const STRING: u64 = 5;
    let module = reader.length()?;
    // When it is to be loaded: before or after the keys.
    reader.length()?;
    reader.length()?;
    loop {
        match reader.length()? {
            END => return Ok(module_name(module)),
            SIGNED | UNSIGNED => _ = reader.length()?,
            FLOAT => _ = reader.array::<4>()?,
            DOUBLE => _ = reader.array::<8>()?,
            STRING => _ = reader.string()?,
            _ => return Err(LoadError::UnknownType(opcode::MODULE_AUX)),
        }
    }
}

/// A module's name: nine letters of six bits, and ten bits of its format's version.
fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|place| char::from(LETTERS[(id >> (58 - 6 * place) & 63) as usize])).collect()
}
