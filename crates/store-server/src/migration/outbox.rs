//! What a connection has yet to take: short requests together, large values as they are.

use std::collections::VecDeque;

use store_resp::write_request;

use super::Restore;

/// Requests shorter than this share a buffer.
const SHARED_LEN: usize = 64 * 1024;

/// Bytes in order, behind those that were taken.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    parts: VecDeque<Vec<u8>>,
    /// How much of the first part was taken.
    taken: usize,
}

impl Outbox {
    /// Whether everything was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether so much waits that it is worth sending.
    pub(crate) fn is_full(&self) -> bool {
        self.parts.len() > 1 || self.parts.front().is_some_and(|part| part.len() >= SHARED_LEN)
    }

    /// The bytes that come next, no more than `len_max`.
    pub(crate) fn next(&self, len_max: usize) -> &[u8] {
        let Some(first) = self.parts.front() else { return &[] };
        let rest = &first[self.taken..];
        &rest[..rest.len().min(len_max)]
    }

    /// So many of the next bytes were taken. Returns a part that is done with, if it is large:
    /// giving its memory back takes a while.
    pub(crate) fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        self.taken += len;
        if self.parts.front().is_none_or(|first| self.taken < first.len()) {
            return None;
        }
        self.taken = 0;
        self.parts.pop_front().filter(|part| part.len() > SHARED_LEN)
    }

    /// Adds a request.
    pub(crate) fn push<'a>(&mut self, words: impl ExactSizeIterator<Item = &'a [u8]>) {
        write_request(self.last(), words);
    }

    /// Adds a RESTORE.
    pub(crate) fn push_restore(&mut self, restore: &Restore, payload: Vec<u8>) {
        let ttl = restore.ttl_ms.to_string();
        let last = self.last();
        let words = if restore.replaces { 5 } else { 4 };
        last.extend_from_slice(format!("*{words}\r\n").as_bytes());
        for word in [restore.command, &restore.key, ttl.as_bytes()] {
            last.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            last.extend_from_slice(word);
            last.extend_from_slice(b"\r\n");
        }
        last.extend_from_slice(format!("${}\r\n", payload.len()).as_bytes());
        if payload.len() < SHARED_LEN {
            last.extend_from_slice(&payload);
        } else {
            self.parts.push_back(payload);
            self.parts.push_back(Vec::new());
        }
        let end: &[u8] = if restore.replaces { b"\r\n$7\r\nREPLACE\r\n" } else { b"\r\n" };
        self.last().extend_from_slice(end);
    }

    /// A part that takes more.
    fn last(&mut self) -> &mut Vec<u8> {
        if self.parts.back().is_none_or(|last| last.len() >= SHARED_LEN) {
            self.parts.push_back(Vec::new());
        }
        self.parts.back_mut().expect("one was just added")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_in_pieces_is_what_was_put_in() {
        let restore = |key: &str, replaces| Restore {
            command: b"RESTORE",
            key: key.as_bytes().to_vec(),
            ttl_ms: 7,
            replaces,
        };
        let mut outbox = Outbox::default();
        outbox.push([b"SELECT".as_slice(), b"3"].into_iter());
        outbox.push_restore(&restore("small", false), b"payload".to_vec());
        outbox.push_restore(&restore("large", true), vec![b'x'; 100_000]);
        outbox.push_restore(&restore("last", false), b"payload".to_vec());
        let (mut bytes, mut large) = (Vec::new(), 0);
        while !outbox.is_empty() {
            let piece = outbox.next(1000).to_vec();
            large += outbox.take(piece.len()).map_or(0, |part| part.len());
            bytes.extend_from_slice(&piece);
        }
        let mut expected = Vec::new();
        let value = vec![b'x'; 100_000];
        write_request(&mut expected, [b"SELECT".as_slice(), b"3"].into_iter());
        write_request(
            &mut expected,
            [b"RESTORE".as_slice(), b"small", b"7", b"payload"].into_iter(),
        );
        let words = [b"RESTORE".as_slice(), b"large", b"7", &value, b"REPLACE"];
        write_request(&mut expected, words.into_iter());
        write_request(
            &mut expected,
            [b"RESTORE".as_slice(), b"last", b"7", b"payload"].into_iter(),
        );
        assert!(bytes == expected);
        assert_eq!(large, 100_000);
    }
}
