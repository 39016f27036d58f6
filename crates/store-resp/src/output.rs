//! Replies that wait to be written: plain bytes, with large strings between them that are shared
//! with whoever keeps them and never copied.
//!
//! ```text
//! bytes   $5\r\n  hello  \r\n $70000\r\n │ \r\n :1\r\n
//! parts                        the value ┘ at this position, by reference
//! ```
//! A reader who is slow costs what nobody else holds: sealed bytes, and what was removed since.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Strings from this length on are shared with replies; shorter ones are copied, which is cheaper.
pub const SHARED_MIN: usize = 32 * 1024;

/// Replies of one client that are not written yet.
#[derive(Debug, Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// How many of `bytes` are written.
    written: usize,
    parts: Option<Box<Parts>>,
}

/// What stands between the plain bytes.
#[derive(Debug, Default)]
struct Parts {
    queue: VecDeque<Part>,
    /// Bytes of all parts that are not written.
    unread: usize,
    /// Bytes of parts that nobody else holds.
    own: usize,
}

#[derive(Debug)]
struct Part {
    /// Where it is in the plain bytes: before the byte at this position.
    at: usize,
    text: Arc<Vec<u8>>,
    range: Range<usize>,
    /// What it counts for as the client's own memory; 0 when it is shared.
    own: usize,
}

impl Output {
    /// The plain bytes, written ones included: what a short reply looks like.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The plain bytes, to append to them.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Where the next reply will begin, for [`truncate`](Self::truncate) and
    /// [`insert_at`](Self::insert_at). Writing changes it.
    #[inline]
    pub fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that are not written yet.
    #[inline]
    pub fn unread(&self) -> usize {
        let parts = self.parts.as_ref().map_or(0, |parts| parts.unread);
        self.bytes.len() - self.written + parts
    }

    /// Whether all is written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.unread() == 0
    }

    /// Forgets everything, and gives its memory back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes back everything behind a position.
    #[inline]
    pub fn truncate(&mut self, position: usize) {
        self.bytes.truncate(position);
        if let Some(parts) = &mut self.parts {
            while parts.queue.back().is_some_and(|part| part.at > position) {
                parts.pop_back();
            }
        }
    }

    /// Puts whole frames before what was written from `position` on.
    pub fn insert_at(&mut self, position: usize, frames: &[u8]) {
        self.bytes.splice(position..position, frames.iter().copied());
        if let Some(parts) = &mut self.parts {
            let behind = parts.queue.iter_mut().filter(|part| part.at > position);
            behind.for_each(|part| part.at += frames.len());
        }
    }

    /// Appends plain bytes.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a part of a text without copying it. Whatever begins before it must have written
    /// a plain byte before, such as the header of the string.
    pub fn push_shared(&mut self, text: Arc<Vec<u8>>, range: Range<usize>) {
        if !range.is_empty() {
            let at = self.bytes.len();
            self.parts.get_or_insert_default().push(Part { at, text, range, own: 0 });
        }
    }

    /// Memory of the plain bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Lends a buffer for plain bytes, unless there is one.
    #[inline]
    pub fn lend(&mut self, buffer: &mut Vec<u8>) {
        if self.bytes.capacity() == 0 {
            self.bytes = std::mem::take(buffer);
        }
    }

    /// The buffer of the plain bytes, when all is written.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty());
        self.written = 0;
        let mut buffer = std::mem::take(&mut self.bytes);
        buffer.clear();
        buffer
    }

    /// Memory that is held for this client alone.
    #[inline]
    pub fn memory(&self) -> usize {
        let parts = self.parts.as_ref().map_or(0, |parts| parts.memory());
        self.bytes.capacity() + parts
    }

    /// Plain bytes that are not written: `obl` of CLIENT LIST.
    pub fn buffered(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Parts that wait behind the plain bytes, and their bytes: `oll` and `omem` of CLIENT LIST.
    pub fn queued(&self) -> (usize, usize) {
        let Some(parts) = &self.parts else { return (0, 0) };
        let count = parts.queue.len();
        (count, parts.unread + count * size_of::<Part>())
    }

    /// Texts that are shared with others.
    pub fn shared(&self) -> impl Iterator<Item = &Arc<Vec<u8>>> {
        let parts = self.parts.iter().flat_map(|parts| parts.queue.iter());
        parts.filter(|part| part.own == 0).map(|part| &part.text)
    }

    /// The next bytes to write, in up to `slices.len()` pieces. Returns how many there are.
    pub fn next_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut from = self.written;
        let mut count = 0;
        let mut add = |bytes: &'a [u8]| {
            if !bytes.is_empty() && count < slices.len() {
                slices[count] = IoSlice::new(bytes);
                count += 1;
            }
            count < slices.len()
        };
        for part in self.parts.iter().flat_map(|parts| parts.queue.iter()) {
            let goes_on = add(&self.bytes[from..part.at]) && add(&part.text[part.range.clone()]);
            if !goes_on {
                return count;
            }
            from = part.at;
        }
        add(&self.bytes[from..]);
        count
    }

    /// So many bytes were written.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        match &self.parts {
            None => self.written += count,
            Some(_) => self.advance_parts(count),
        }
        if self.written == self.bytes.len() && self.parts.is_none() {
            self.written = 0;
            self.bytes.clear();
        }
    }

    fn advance_parts(&mut self, mut count: usize) {
        let Some(parts) = &mut self.parts else { return };
        while let Some(part) = parts.queue.front_mut() {
            let plain = (part.at - self.written).min(count);
            self.written += plain;
            count -= plain;
            let of_part = part.range.len().min(count);
            part.range.start += of_part;
            parts.unread -= of_part;
            count -= of_part;
            if !part.range.is_empty() {
                return;
            }
            parts.own -= part.own;
            parts.queue.pop_front();
        }
        self.parts = None;
        self.written += count;
    }

    /// Makes the best of a reader who takes no more for now: plain bytes from `sealed_min` on
    /// become a part that takes no more memory than it needs, and a written front is dropped.
    pub fn settle(&mut self, sealed_min: usize) {
        let left = self.bytes.len() - self.written;
        if left >= sealed_min {
            self.seal();
        } else if self.written > left {
            let written = std::mem::take(&mut self.written);
            self.bytes.drain(..written);
            let parts = self.parts.iter_mut().flat_map(|parts| parts.queue.iter_mut());
            parts.for_each(|part| part.at -= written);
        }
    }

    fn seal(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.drain(..self.written);
        let written = std::mem::take(&mut self.written);
        bytes.shrink_to_fit();
        let len = bytes.len();
        let text = Arc::new(bytes);
        let parts = self.parts.get_or_insert_default();
        let before = std::mem::take(&mut parts.queue);
        let mut from = 0;
        for mut part in before {
            let at = part.at - written;
            parts.push_own(&text, from..at);
            from = at;
            part.at = 0;
            parts.queue.push_back(part);
        }
        parts.push_own(&text, from..len);
    }

    /// Everything that is not written, as one text: for tests and small replies.
    pub fn to_vec(&self) -> Vec<u8> {
        let pieces = 2 * self.parts.as_ref().map_or(0, |parts| parts.queue.len()) + 1;
        let mut slices = vec![IoSlice::new(&[]); pieces];
        let count = self.next_slices(&mut slices);
        slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect()
    }
}

impl Parts {
    fn push(&mut self, part: Part) {
        self.unread += part.range.len();
        self.own += part.own;
        self.queue.push_back(part);
    }

    fn push_own(&mut self, text: &Arc<Vec<u8>>, range: Range<usize>) {
        if !range.is_empty() {
            let own = range.len();
            self.push(Part { at: 0, text: Arc::clone(text), range, own });
        }
    }

    fn pop_back(&mut self) {
        if let Some(part) = self.queue.pop_back() {
            self.unread -= part.range.len();
            self.own -= part.own;
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.queue.capacity() * size_of::<Part>() + self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(letter: u8, len: usize) -> Arc<Vec<u8>> {
        Arc::new(vec![letter; len])
    }

    /// `a1a2`, then five of a shared text, `b`, a part of another, `c`.
    fn mixed() -> (Output, Vec<u8>) {
        let mut output = Output::default();
        output.extend_from_slice(b"a1a2");
        output.push_shared(text(b'x', 5), 0..5);
        output.extend_from_slice(b"b");
        output.push_shared(text(b'y', 9), 2..5);
        output.extend_from_slice(b"c");
        (output, b"a1a2xxxxxbyyyc".to_vec())
    }

    #[test]
    fn what_goes_in_comes_out_in_order_however_little_is_taken_at_once() {
        for step in 1..=14 {
            for settles in [false, true] {
                let (mut output, expected) = mixed();
                let mut taken = Vec::new();
                while !output.is_empty() {
                    let next: Vec<u8> = output.to_vec().into_iter().take(step).collect();
                    assert_eq!(output.unread(), expected.len() - taken.len());
                    output.advance(next.len());
                    taken.extend(next);
                    if settles {
                        output.settle(2);
                    }
                }
                assert_eq!(taken, expected, "{step}, {settles}");
                assert_eq!(output.queued(), (0, 0));
            }
        }
    }

    #[test]
    fn replies_are_taken_back_and_put_before_with_what_they_share() {
        let (mut output, expected) = mixed();
        let position = output.position();
        output.extend_from_slice(b"$7\r\n");
        output.push_shared(text(b'z', 7), 0..7);
        output.extend_from_slice(b"\r\n");
        output.insert_at(position, b"*1\r\n");
        let whole = [&expected[..], b"*1\r\n$7\r\nzzzzzzz\r\n"].concat();
        assert_eq!(output.to_vec(), whole);
        output.truncate(position);
        assert_eq!((output.to_vec(), output.queued().0), (expected, 2));
        output.settle(1);
        output.extend_from_slice(b"more");
        assert!(output.to_vec().ends_with(b"yyycmore"));
    }

    #[test]
    fn only_what_nobody_else_holds_counts() {
        let shared = text(b'x', 1 << 20);
        let mut output = Output::default();
        for _ in 0..10 {
            output.extend_from_slice(b"$1048576\r\n");
            output.push_shared(Arc::clone(&shared), 0..1 << 20);
            output.extend_from_slice(b"\r\n");
        }
        assert!(output.unread() > 10 << 20 && output.memory() < 4096, "{}", output.memory());
        output.extend_from_slice(&[b'y'; 100_000]);
        output.settle(65_536);
        assert!((100_000..110_000).contains(&output.memory()), "{}", output.memory());
        assert_eq!((output.shared().count(), output.capacity()), (10, 0));
    }
}
