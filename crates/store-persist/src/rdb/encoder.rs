//! The stage beside the data: entries to parts.

use store_types::dump::{ValueRef, Writer, save_value, type_code};

use super::opcode;
use super::part::{Access, EntryHead, Part, Run, SavedEntry};

/// A run is handed on when it has this many bytes: large enough that handing on costs nothing,
/// small enough that the other side always has work.
const RUN_BYTES: usize = 256 * 1024;

/// Keys and volatile keys of a database, which the file tells before its first entry.
type Sizes = (u64, u64);

/// Turns entries into parts, in the order they come in; databases may alternate.
#[derive(Debug)]
pub struct Encoder {
    /// What is still to be told of each database.
    sizes: Vec<Option<Sizes>>,
    compresses: bool,
    selected: Option<usize>,
    run: Run,
    parts: Vec<Part>,
    /// Bytes of `parts`.
    parts_bytes: usize,
}

impl Encoder {
    /// An encoder for databases with so many keys and volatile keys each; `compresses` leaves
    /// strings to the writer's compressor.
    pub fn new(sizes: Vec<(u64, u64)>, compresses: bool) -> Self {
        Self {
            sizes: sizes.into_iter().map(Some).collect(),
            compresses,
            selected: None,
            run: Run::default(),
            parts: Vec::new(),
            parts_bytes: 0,
        }
    }

    /// Copies an entry.
    pub fn copy(&mut self, head: EntryHead<'_>, value: ValueRef<'_>) {
        self.select(head.db);
        write_head(&head, type_code(value), &mut self.run.bytes);
        let mut writer = self.writer();
        writer.string(head.key);
        save_value(value, &mut writer);
        self.run.entries += 1;
        if self.run.bytes.len() >= RUN_BYTES {
            self.end_run();
        }
    }

    /// Adds an entry that shares its value; it is encoded by the writer.
    pub fn share(&mut self, entry: SavedEntry) {
        self.select(entry.db);
        self.end_run();
        self.push(Part::Entry(Box::new(entry)));
    }

    /// The parts made so far.
    pub fn take_parts(&mut self) -> Vec<Part> {
        self.end_run();
        self.parts_bytes = 0;
        std::mem::take(&mut self.parts)
    }

    /// Bytes of the parts made so far.
    pub fn pending_bytes(&self) -> usize {
        self.parts_bytes + self.run.bytes.len()
    }

    fn writer(&mut self) -> Writer<'_> {
        match self.compresses {
            true => Writer::deferring(&mut self.run.bytes, &mut self.run.strings),
            false => Writer::new(&mut self.run.bytes, None),
        }
    }

    fn select(&mut self, db: usize) {
        if self.selected == Some(db) {
            return;
        }
        self.selected = Some(db);
        let sizes = self.sizes.get_mut(db).and_then(Option::take);
        let bytes = &mut self.run.bytes;
        bytes.push(opcode::SELECT_DB);
        Writer::new(bytes, None).length(db as u64);
        if let Some((keys, volatile)) = sizes {
            bytes.push(opcode::RESIZE_DB);
            let mut writer = Writer::new(bytes, None);
            writer.length(keys);
            writer.length(volatile);
        }
    }

    fn end_run(&mut self) {
        if !self.run.bytes.is_empty() {
            // As long as the last: a slice's worth, or the few entries that changed in a turn.
            let bytes = Vec::with_capacity(self.run.bytes.len().min(RUN_BYTES));
            let run = Run { bytes, strings: Vec::new(), entries: 0 };
            let run = std::mem::replace(&mut self.run, run);
            self.push(Part::Run(run));
        }
    }

    fn push(&mut self, part: Part) {
        self.parts_bytes += part.own_bytes();
        self.parts.push(part);
    }
}

/// What stands before the key.
pub(super) fn write_head(head: &EntryHead<'_>, type_code: u8, out: &mut Vec<u8>) {
    if let Some(at) = head.expires_at {
        out.push(opcode::EXPIRE_TIME_MS);
        out.extend_from_slice(&at.to_le_bytes());
    }
    match head.access {
        Access::None => {}
        Access::Idle(seconds) => {
            out.push(opcode::IDLE);
            Writer::new(out, None).length(seconds);
        }
        Access::Frequency(counter) => out.extend([opcode::FREQUENCY, counter]),
    }
    out.push(type_code);
}
