//! LZF, the compression of RDB strings: bytes in, fewer bytes out, or none if they are not fewer.
//!
//! ```text
//! 000LLLLL                      L + 1 bytes follow as they are
//! LLLooooo oooooooo             copy L + 2 bytes from o + 1 bytes back, L in 1 … 6
//! 111ooooo LLLLLLLL oooooooo    copy L + 9 bytes from o + 1 bytes back
//! ```
//!
//! The choices are those of liblzf with the settings that Redis uses, so that equal values give
//! equal payloads.

/// The hash table's size; the choice decides on which repetitions are found.
const TABLE_SIZE: usize = 1 << 16;
/// Bytes as they are in one run.
const LITERALS_MAX: usize = 1 << 5;
/// How far back a copy reaches.
const OFFSET_MAX: usize = 1 << 13;
/// The longest copy.
const COPY_MAX: usize = (1 << 8) + (1 << 3);
/// No input grows by more than this factor: three bytes stand for at most 264.
const GROWTH_MAX: usize = 88;

/// Compresses; keeps its table between calls, since clearing it costs more than a short text.
#[derive(Clone, Debug)]
pub struct Compressor {
    /// Position + `base` of the last text with this hash; anything below `base` is of an earlier
    /// call.
    table: Vec<u32>,
    base: u32,
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new()
    }
}

impl Compressor {
    /// A compressor with an empty table of 256 KiB.
    pub fn new() -> Self {
        Self { table: vec![0; TABLE_SIZE], base: 1 }
    }

    /// Appends the compressed form of `input` to `out` and returns its length. `None`, and nothing
    /// appended, when it would take more than `output_max` bytes.
    pub fn compress(
        &mut self,
        input: &[u8],
        output_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        // The table holds 32-bit positions; inputs are far shorter than that.
        if input.len() < 4 || input.len() > (u32::MAX / 2) as usize || output_max == 0 {
            return None;
        }
        if self.base > u32::MAX / 2 {
            self.table.fill(0);
            self.base = 1;
        }
        let start = out.len();
        let mut run = Run { input, out, start, literals: 0, limit: output_max };
        run.open();
        let done = self.compress_into(&mut run);
        self.base += input.len() as u32;
        match done {
            Some(()) => Some(out.len() - start),
            None => {
                out.truncate(start);
                None
            }
        }
    }

    fn compress_into(&mut self, run: &mut Run<'_>) -> Option<()> {
        let input = run.input;
        let end = input.len();
        let mut at = 0;
        while at < end - 2 {
            match self.find(input, at) {
                Some(earlier) => {
                    let length = match_length(input, earlier, at);
                    run.copy(at - earlier - 1, length)?;
                    at += length;
                    if at >= end - 2 {
                        break;
                    }
                    self.remember(input, at - 2);
                    self.remember(input, at - 1);
                }
                None => {
                    run.literal(input[at])?;
                    at += 1;
                }
            }
        }
        if run.len() + 3 > run.limit {
            return None;
        }
        for &byte in &input[at..] {
            run.push_literal(byte);
        }
        run.close();
        Some(())
    }

    /// An earlier position with the same three bytes, by the table; remembers this one.
    #[inline]
    fn find(&mut self, input: &[u8], at: usize) -> Option<usize> {
        let slot = self.remember(input, at);
        let earlier = slot.checked_sub(self.base)? as usize;
        // Position zero is never found: in liblzf it cannot be told from an empty slot.
        let usable = earlier > 0 && at - earlier - 1 < OFFSET_MAX;
        (usable && input[earlier..earlier + 3] == input[at..at + 3]).then_some(earlier)
    }

    #[inline]
    fn remember(&mut self, input: &[u8], at: usize) -> u32 {
        let value = u32::from_be_bytes([0, input[at], input[at + 1], input[at + 2]]);
        let index = (value >> 8).wrapping_sub(value.wrapping_mul(5)) as usize % TABLE_SIZE;
        std::mem::replace(&mut self.table[index], at as u32 + self.base)
    }
}

/// How many bytes at `at` repeat those at `earlier`; the first three do.
///
/// Two bytes at the end are left to literals, except that a long rest is compared sixteen bytes on
/// without looking at that limit: so liblzf does.
fn match_length(input: &[u8], earlier: usize, at: usize) -> usize {
    const UNROLLED: usize = 16;
    let limit = (input.len() - at - 2).min(COPY_MAX);
    let same = |length: usize| input[earlier + length] == input[at + length];
    let mut length = 2;
    if limit > UNROLLED {
        for _ in 0..UNROLLED {
            length += 1;
            if !same(length) {
                return length;
            }
        }
    }
    loop {
        length += 1;
        if length >= limit || !same(length) {
            return length;
        }
    }
}

/// The output, with its open run of literals.
struct Run<'a> {
    input: &'a [u8],
    out: &'a mut Vec<u8>,
    start: usize,
    literals: usize,
    limit: usize,
}

impl Run<'_> {
    /// Bytes written, the control byte of the open run included.
    fn len(&self) -> usize {
        self.out.len() - self.start
    }

    fn open(&mut self) {
        self.literals = 0;
        self.out.push(0);
    }

    /// Writes the control byte of the run, or takes it back when the run is empty.
    fn close(&mut self) {
        if self.literals == 0 {
            self.out.pop();
        } else {
            let control = self.out.len() - self.literals - 1;
            self.out[control] = (self.literals - 1) as u8;
        }
    }

    fn literal(&mut self, byte: u8) -> Option<()> {
        if self.len() >= self.limit {
            return None;
        }
        self.push_literal(byte);
        Some(())
    }

    fn push_literal(&mut self, byte: u8) {
        self.out.push(byte);
        self.literals += 1;
        if self.literals == LITERALS_MAX {
            self.close();
            self.open();
        }
    }

    fn copy(&mut self, offset: usize, length: usize) -> Option<()> {
        if self.len() - usize::from(self.literals == 0) + 4 >= self.limit {
            return None;
        }
        self.close();
        let high = (offset >> 8) as u8;
        match length - 2 {
            short @ 0..7 => self.out.push(high | (short as u8) << 5),
            long => self.out.extend_from_slice(&[high | 7 << 5, (long - 7) as u8]),
        }
        self.out.push(offset as u8);
        self.open();
        Some(())
    }
}

/// Decompresses into exactly `length` bytes; `None` when the input is damaged or says otherwise.
pub fn decompress(input: &[u8], length: usize) -> Option<Vec<u8>> {
    if length > input.len().saturating_mul(GROWTH_MAX) {
        return None;
    }
    let mut out = Vec::with_capacity(length);
    let mut at = 0;
    while at < input.len() {
        let control = usize::from(input[at]);
        at += 1;
        if control < LITERALS_MAX {
            let literals = input.get(at..at + control + 1)?;
            out.extend_from_slice(literals);
            at += literals.len();
        } else {
            let mut count = control >> 5;
            if count == 7 {
                count += usize::from(*input.get(at)?);
                at += 1;
            }
            let offset = (control & 0x1f) << 8 | usize::from(*input.get(at)?);
            at += 1;
            copy_within(&mut out, offset + 1, count + 2, length)?;
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

/// Appends `count` bytes from `distance` back; the copy may overlap what it appends.
fn copy_within(out: &mut Vec<u8>, distance: usize, count: usize, length: usize) -> Option<()> {
    let from = out.len().checked_sub(distance)?;
    if out.len() + count > length {
        return None;
    }
    if count <= distance {
        out.extend_from_within(from..from + count);
    } else {
        for at in from..from + count {
            out.push(out[at]);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(compressor: &mut Compressor, input: &[u8]) -> Option<usize> {
        let mut out = b"before".to_vec();
        let length = compressor.compress(input, input.len(), &mut out);
        assert_eq!(out.len(), 6 + length.unwrap_or(0));
        if length.is_some() {
            assert_eq!(decompress(&out[6..], input.len()).as_deref(), Some(input));
        }
        length
    }

    #[test]
    fn repetition_shrinks_and_noise_is_left_alone() {
        let mut compressor = Compressor::new();
        assert!(round_trip(&mut compressor, &[b'a'; 10_000]).unwrap() < 200);
        assert_eq!(round_trip(&mut compressor, b"abcdefghijklmnopqrstuvwxyz"), None);
        let text = b"the same words, the same words, the same words again".repeat(3);
        assert!(round_trip(&mut compressor, &text).unwrap() < text.len() / 2);
    }

    #[test]
    fn a_false_length_is_refused_before_memory_is_taken() {
        assert_eq!(decompress(&[0, b'a'], usize::MAX), None);
        assert_eq!(decompress(&[0x20, 0x00], 3), None);
        assert_eq!(decompress(&[0, b'a'], 2), None);
        assert_eq!(decompress(&[0, b'a'], 1).as_deref(), Some(b"a".as_slice()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_compressed_comes_back(
            words in proptest::collection::vec("[ab]{1,4}|[a-z]{3,9}", 1..300), repeat in 1_usize..4
        ) {
            let mut compressor = Compressor::new();
            let text = words.concat().repeat(repeat).into_bytes();
            let fresh = round_trip(&mut compressor, &text);
            let reused = round_trip(&mut compressor, &text);
            prop_assert_eq!(reused, fresh, "a used table changes nothing");
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, length in 0_usize..5_000) {
            let _ = decompress(&bytes, length);
        }
    }
}
