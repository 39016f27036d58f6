//! Lengths, strings and numbers of the format, appended to a buffer.

use crate::lzf::Compressor;
use crate::number::parse_i64;

/// Strings up to this length are tried as integers.
const INTEGER_TEXT_MAX: usize = 11;
/// Strings longer than this are tried for compression.
const COMPRESS_MIN: usize = 20;
/// Compression must save at least this many bytes.
const COMPRESS_SAVING_MIN: usize = 4;

/// Appends parts of values to a buffer.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    long_strings: LongStrings<'a>,
    spill: Option<Spill<'a>>,
}

/// Empties a buffer.
type Spill<'a> = &'a mut dyn FnMut(&mut Vec<u8>);

/// A buffer that can be emptied on the way is, when it has this many bytes.
const SPILL_LEN: usize = 256 * 1024;

/// What becomes of strings that are worth compressing.
enum LongStrings<'a> {
    Plain,
    Compressed(&'a mut Compressor),
    /// They are copied without a head; somebody else has the time to compress them.
    Deferred(&'a mut Vec<Span>),
}

/// Where in a buffer a string stands that has no head yet: see [`Writer::deferring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: usize,
    /// Its length.
    pub len: usize,
}

impl<'a> Writer<'a> {
    /// A writer to the end of `out`; with a compressor it compresses long strings.
    pub fn new(out: &'a mut Vec<u8>, compressor: Option<&'a mut Compressor>) -> Self {
        let long_strings = compressor.map_or(LongStrings::Plain, LongStrings::Compressed);
        Self { out, long_strings, spill: None }
    }

    /// The same, for values that are not to stand in memory once more as a whole: `spill` is
    /// called to empty the buffer whenever it has become long.
    pub fn spilling(
        out: &'a mut Vec<u8>,
        compressor: Option<&'a mut Compressor>,
        spill: &'a mut dyn FnMut(&mut Vec<u8>),
    ) -> Self {
        Self { spill: Some(spill), ..Self::new(out, compressor) }
    }

    /// A writer that leaves the compression to others: strings worth trying stand bare in `out`,
    /// and `spans` says where. Passing each through [`string`](Self::string) of a writer with a
    /// compressor, and the bytes between them as they are, gives the finished form.
    pub fn deferring(out: &'a mut Vec<u8>, spans: &'a mut Vec<Span>) -> Self {
        Self { out, long_strings: LongStrings::Deferred(spans), spill: None }
    }

    /// A length, or any other number that is small as a rule.
    pub fn length(&mut self, length: u64) {
        match length {
            0..0x40 => self.out.push(length as u8),
            0x40..0x4000 => self.out.extend_from_slice(&(0x4000 | length as u16).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.out.push(0x80);
                self.out.extend_from_slice(&(length as u32).to_be_bytes());
            }
            _ => {
                self.out.push(0x81);
                self.out.extend_from_slice(&length.to_be_bytes());
            }
        }
    }

    /// A string: as an integer, compressed or as it is, whichever applies first.
    pub fn string(&mut self, bytes: &[u8]) {
        if self.out.len() >= SPILL_LEN
            && let Some(spill) = &mut self.spill
        {
            spill(self.out);
        }
        if bytes.len() <= INTEGER_TEXT_MAX && self.integer_text(bytes) {
            return;
        }
        if bytes.len() > COMPRESS_MIN && (self.deferred(bytes) || self.compressed(bytes)) {
            return;
        }
        self.length(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn integer_text(&mut self, bytes: &[u8]) -> bool {
        let Some(value) = parse_i64(bytes) else { return false };
        if let Ok(value) = i8::try_from(value) {
            self.out.extend_from_slice(&[0xc0, value as u8]);
        } else if let Ok(value) = i16::try_from(value) {
            self.out.push(0xc1);
            self.out.extend_from_slice(&value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.out.push(0xc2);
            self.out.extend_from_slice(&value.to_le_bytes());
        } else {
            return false;
        }
        true
    }

    fn deferred(&mut self, bytes: &[u8]) -> bool {
        let LongStrings::Deferred(spans) = &mut self.long_strings else { return false };
        spans.push(Span { start: self.out.len(), len: bytes.len() });
        self.out.extend_from_slice(bytes);
        true
    }

    fn compressed(&mut self, bytes: &[u8]) -> bool {
        let LongStrings::Compressed(compressor) = &mut self.long_strings else { return false };
        let mut packed = Vec::new();
        let limit = bytes.len() - COMPRESS_SAVING_MIN;
        if compressor.compress(bytes, limit, &mut packed).is_none() {
            return false;
        }
        self.out.push(0xc3);
        self.length(packed.len() as u64);
        self.length(bytes.len() as u64);
        self.out.extend_from_slice(&packed);
        true
    }

    /// A score, as it is in memory.
    pub fn double(&mut self, value: f64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// A moment in Unix milliseconds.
    pub fn milliseconds(&mut self, moment: i64) {
        self.out.extend_from_slice(&moment.to_le_bytes());
    }

    /// Bytes without a length before them.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}
