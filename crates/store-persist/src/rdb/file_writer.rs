//! The stage beside the file: parts to bytes.

use std::io::{self, Write};

use store_types::crc64::crc64;
use store_types::dump::{Writer, save_value, type_code};
use store_types::lzf::Compressor;

use super::encoder::write_head;
use super::part::{Part, Run, SavedEntry};
use super::{MAGIC, VERSION, opcode};

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Strings are compressed (`rdbcompression`). The encoder must have been told the same.
    pub compresses: bool,
    /// The file ends in a checksum (`rdbchecksum`), else in zeros.
    pub checksums: bool,
}

/// What a file tells before its first entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// How the file is written.
    pub options: WriteOptions,
    /// Facts about it, such as who wrote it.
    pub facts: Vec<(String, Vec<u8>)>,
    /// The texts of the function libraries.
    pub functions: Vec<Vec<u8>>,
}

/// Writes one file: head, parts, end. Buffers nothing beyond one part.
pub struct FileWriter<W> {
    out: W,
    options: WriteOptions,
    compressor: Option<Box<Compressor>>,
    scratch: Vec<u8>,
    checksum: u64,
    written: u64,
}

impl<W: Write> FileWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of `out`, as for all that follow.
    pub fn begin(out: W, head: &Head) -> io::Result<Self> {
        let options = head.options;
        let compressor = options.compresses.then(|| Box::new(Compressor::new()));
        let scratch = Vec::new();
        let mut file = Self { out, options, compressor, scratch, checksum: 0, written: 0 };
        file.scratch.extend_from_slice(MAGIC);
        file.scratch.extend_from_slice(format!("{VERSION:04}").as_bytes());
        for (name, value) in &head.facts {
            file.scratch.push(opcode::AUX);
            let mut writer = Writer::new(&mut file.scratch, file.compressor.as_deref_mut());
            writer.string(name.as_bytes());
            writer.string(value);
        }
        for code in &head.functions {
            file.scratch.push(opcode::FUNCTION);
            Writer::new(&mut file.scratch, file.compressor.as_deref_mut()).string(code);
        }
        file.put_scratch()?;
        Ok(file)
    }

    /// Writes the next part.
    ///
    /// # Errors
    /// Those of the output.
    pub fn part(&mut self, part: &Part) -> io::Result<()> {
        match part {
            Part::Run(run) if run.strings.is_empty() => self.put(&run.bytes),
            Part::Run(run) => self.run(run),
            Part::Entry(entry) => self.entry(entry),
        }
    }

    /// Writes the end and returns the output with the number of bytes written. Flushing and
    /// syncing is the caller's business.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.put(&[opcode::END])?;
        let checksum = if self.options.checksums { self.checksum } else { 0 };
        self.out.write_all(&checksum.to_le_bytes())?;
        Ok((self.out, self.written + 8))
    }

    /// Lets `sync` bring what was written so far to safety.
    ///
    /// # Errors
    /// Those of `sync`.
    pub fn sync(&mut self, sync: impl FnOnce(&mut W) -> io::Result<()>) -> io::Result<()> {
        sync(&mut self.out)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn run(&mut self, run: &Run) -> io::Result<()> {
        let mut at = 0;
        for span in &run.strings {
            self.scratch.extend_from_slice(&run.bytes[at..span.start]);
            at = span.start + span.len;
            let compressor = self.compressor.as_deref_mut();
            Writer::new(&mut self.scratch, compressor).string(&run.bytes[span.start..at]);
        }
        self.scratch.extend_from_slice(&run.bytes[at..]);
        self.put_scratch()
    }

    fn entry(&mut self, entry: &SavedEntry) -> io::Result<()> {
        let value = entry.value.as_ref();
        write_head(&entry.head(), type_code(value), &mut self.scratch);
        let mut writer = Writer::new(&mut self.scratch, self.compressor.as_deref_mut());
        writer.string(&entry.key);
        save_value(value, &mut writer);
        self.put_scratch()
    }

    fn put_scratch(&mut self) -> io::Result<()> {
        /// A large value leaves no more than this behind.
        const SCRATCH_KEPT_MAX: usize = 1024 * 1024;
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.put(&scratch);
        scratch.clear();
        scratch.shrink_to(SCRATCH_KEPT_MAX);
        self.scratch = scratch;
        result
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.options.checksums {
            self.checksum = crc64(self.checksum, bytes);
        }
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}
