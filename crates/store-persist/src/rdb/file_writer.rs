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
    sink: Sink<W>,
    compressor: Option<Box<Compressor>>,
    scratch: Vec<u8>,
}

/// The output, with what is known of the bytes that went there.
struct Sink<W> {
    out: W,
    checksums: bool,
    checksum: u64,
    written: u64,
}

impl<W: Write> Sink<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.checksums {
            self.checksum = crc64(self.checksum, bytes);
        }
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

impl<W: Write> FileWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of `out`, as for all that follow.
    pub fn begin(out: W, head: &Head) -> io::Result<Self> {
        let WriteOptions { compresses, checksums } = head.options;
        let compressor = compresses.then(|| Box::new(Compressor::new()));
        let sink = Sink { out, checksums, checksum: 0, written: 0 };
        let mut file = Self { sink, compressor, scratch: Vec::new() };
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
            Part::Run(run) if run.strings.is_empty() => self.sink.put(&run.bytes),
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
        self.sink.put(&[opcode::END])?;
        // Zero unless it was asked for.
        let checksum = self.sink.checksum;
        self.sink.out.write_all(&checksum.to_le_bytes())?;
        Ok((self.sink.out, self.sink.written + 8))
    }

    /// Lets `sync` bring what was written so far to safety.
    ///
    /// # Errors
    /// Those of `sync`.
    pub fn sync(&mut self, sync: impl FnOnce(&mut W) -> io::Result<()>) -> io::Result<()> {
        sync(&mut self.sink.out)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.sink.written
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

    /// Large values go out piece by piece: they stand in memory once already.
    fn entry(&mut self, entry: &SavedEntry) -> io::Result<()> {
        let value = entry.value.as_ref();
        let Self { sink, compressor, scratch, .. } = self;
        write_head(&entry.head(), type_code(value), scratch);
        let mut result = Ok(());
        let mut spill = |bytes: &mut Vec<u8>| {
            if result.is_ok() {
                result = sink.put(bytes);
            }
            bytes.clear();
        };
        let mut writer = Writer::spilling(scratch, compressor.as_deref_mut(), &mut spill);
        writer.string(&entry.key);
        save_value(value, &mut writer);
        result?;
        self.put_scratch()
    }

    fn put_scratch(&mut self) -> io::Result<()> {
        /// A large value leaves no more than this behind.
        const SCRATCH_KEPT_MAX: usize = 1024 * 1024;
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.sink.put(&scratch);
        scratch.clear();
        scratch.shrink_to(SCRATCH_KEPT_MAX);
        self.scratch = scratch;
        result
    }
}
