//! The last part of the stream, kept once for all readers and for those who come back.
//!
//! Blocks in order; a reader is an offset. There is one owner, so readers borrow and nothing is
//! counted or copied per replica. What a reader has not read yet is not trimmed: the backlog is as
//! long as its slowest reader needs, and whoever asks meanwhile may use all of it.

use std::collections::VecDeque;

use crate::settings::BlockSize;

/// How many blocks go in one call, so that no write pays for all that a slow reader held.
const TRIMMED_MAX: usize = 64;

/// A stretch of the stream.
#[derive(Debug)]
struct Block {
    first: u64,
    bytes: Vec<u8>,
}

impl Block {
    fn end(&self) -> u64 {
        self.first + self.bytes.len() as u64
    }
}

/// The stream from [`first`](Self::first) to [`end`](Self::end).
#[derive(Debug)]
pub struct Backlog {
    /// Where it began; the first block's beginning once there is a block.
    born_at: u64,
    blocks: VecDeque<Block>,
}

impl Backlog {
    /// An empty one whose first byte will be number `offset`.
    pub fn new(offset: u64) -> Self {
        Self { born_at: offset, blocks: VecDeque::new() }
    }

    /// The first offset from which it can be read.
    pub fn first(&self) -> u64 {
        self.blocks.front().map_or(self.born_at, |block| block.first)
    }

    /// The offset behind its last byte.
    pub fn end(&self) -> u64 {
        self.blocks.back().map_or(self.born_at, Block::end)
    }

    /// How many bytes of the stream it has.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> u64 {
        self.end() - self.first()
    }

    /// Whether a reader can begin at `offset`; at the end, too, where there is nothing to read yet.
    pub fn has(&self, offset: u64) -> bool {
        (self.first()..=self.end()).contains(&offset)
    }

    /// Memory behind it.
    pub fn memory(&self) -> usize {
        self.blocks.iter().map(|block| block.bytes.capacity()).sum()
    }

    /// Appends `bytes`, cut into blocks of the given size. Returns how many blocks it began.
    pub fn append(&mut self, mut bytes: &[u8], size: BlockSize) -> usize {
        let before = self.blocks.len();
        while !bytes.is_empty() {
            let end = self.end();
            let room = self.blocks.back().map_or(0, |b| b.bytes.capacity() - b.bytes.len());
            if room == 0 {
                let capacity = bytes.len().clamp(size.min, size.max.max(size.min));
                let block = Block { first: end, bytes: Vec::with_capacity(capacity) };
                self.blocks.push_back(block);
                continue;
            }
            let (fits, rest) = bytes.split_at(room.min(bytes.len()));
            let last = self.blocks.back_mut().expect("a block with room is there");
            last.bytes.extend_from_slice(fits);
            bytes = rest;
        }
        self.blocks.len() - before
    }

    /// The bytes from `offset` on that lie together; empty at the end.
    ///
    /// Panics before the beginning: a reader was forgotten when the backlog was trimmed.
    pub fn read(&self, offset: u64) -> &[u8] {
        assert!(self.has(offset), "a reader at {offset} is not in {}..", self.first());
        let index = self.blocks.partition_point(|block| block.end() <= offset);
        let Some(block) = self.blocks.get(index) else { return &[] };
        &block.bytes[(offset - block.first) as usize..]
    }

    /// The same, with what follows them, in as many stretches as there is room for.
    pub fn read_all<'a>(&'a self, offset: u64, into: &mut [&'a [u8]]) -> usize {
        let mut at = offset;
        for (count, place) in into.iter_mut().enumerate() {
            *place = self.read(at);
            if place.is_empty() {
                return count;
            }
            at += place.len() as u64;
        }
        into.len()
    }

    /// Gives up blocks that are more than `size` bytes old and that no reader needs: `slowest` is
    /// where the last of them stands.
    pub fn trim(&mut self, size: usize, slowest: Option<u64>) {
        let wanted = self.end().saturating_sub(size as u64);
        let keep_from = slowest.map_or(wanted, |slowest| slowest.min(wanted));
        for _ in 0..TRIMMED_MAX {
            let is_old = self.blocks.front().is_some_and(|block| block.end() <= keep_from);
            if !is_old {
                return;
            }
            let block = self.blocks.pop_front().expect("it was just looked at");
            self.born_at = block.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: BlockSize = BlockSize { min: 8, max: 16 };

    fn all(backlog: &Backlog, mut offset: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let part = backlog.read(offset);
            if part.is_empty() {
                return bytes;
            }
            bytes.extend_from_slice(part);
            offset += part.len() as u64;
        }
    }

    #[test]
    fn what_is_appended_is_read_from_any_offset() {
        let mut backlog = Backlog::new(1000);
        let bytes: Vec<u8> = (0..100).collect();
        for part in bytes.chunks(7) {
            backlog.append(part, SIZE);
        }
        for from in 0..=100 {
            assert_eq!(all(&backlog, 1000 + from as u64), bytes[from..]);
            let mut stretches = [&[][..]; 20];
            let count = backlog.read_all(1000 + from as u64, &mut stretches);
            assert_eq!(stretches[..count].concat(), bytes[from..]);
        }
        assert!(!backlog.has(999) && !backlog.has(1101));
    }

    #[test]
    fn a_slow_reader_keeps_what_it_needs_and_no_more() {
        let mut backlog = Backlog::new(0);
        for _ in 0..100 {
            backlog.append(&[7; 8], SIZE);
            backlog.trim(64, Some(100));
        }
        assert_eq!(backlog.first(), 96, "whole blocks before the reader are gone");
        backlog.trim(64, Some(700));
        assert_eq!(backlog.first(), 608, "a trim is bounded: {TRIMMED_MAX} blocks");
        backlog.trim(64, None);
        assert_eq!(backlog.first(), 736, "64 bytes are kept for those who come back");
    }

    #[test]
    fn a_large_value_can_be_trimmed_in_part() {
        let mut backlog = Backlog::new(0);
        backlog.append(&[1; 1000], SIZE);
        backlog.trim(64, None);
        assert!(backlog.len() <= 64 + SIZE.max as u64, "{} bytes are kept", backlog.len());
    }

    #[test]
    fn one_that_is_trimmed_to_nothing_still_knows_where_it_is() {
        let mut backlog = Backlog::new(5);
        backlog.append(&[1; 32], SIZE);
        backlog.trim(0, None);
        assert_eq!((backlog.first(), backlog.end(), backlog.len()), (37, 37, 0));
        assert!(backlog.read(37).is_empty());
    }
}
