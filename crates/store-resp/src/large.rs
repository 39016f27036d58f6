//! Large arguments on their way in: each has a buffer of its own, sized for it when its header
//! is read, which becomes the value without a copy.

use std::sync::Arc;

/// Arguments of this length get room to grow: whoever keeps them may append to them.
const ROOMY_MIN: usize = 16 * 1024 * 1024;
/// So much room: it is not touched, and so costs nothing, until it is used.
const ROOM: usize = 1024 * 1024;

/// Large arguments of the requests at hand.
#[derive(Debug, Default)]
pub struct LargeArgs {
    whole: Vec<Arc<Vec<u8>>>,
    /// How many of them belong to requests before the one at the front.
    before: usize,
    /// The one that is not whole yet, and how long it will be.
    body: Option<Vec<u8>>,
    len: usize,
    /// Bytes at the end of the last input that went into it.
    pub(crate) taken: usize,
}

impl LargeArgs {
    /// Bytes that are missing of the argument that is not whole yet.
    #[inline]
    pub fn missing(&self) -> usize {
        self.body.as_ref().map_or(0, |body| self.len.saturating_sub(body.len()))
    }

    /// Where the missing bytes go: behind those that are there. There may be room for more; what
    /// comes behind the argument is fetched with [`take_rest`](Self::take_rest).
    pub fn body_mut(&mut self) -> Option<&mut Vec<u8>> {
        self.body.as_mut()
    }

    /// Moves bytes that follow the argument to `input`.
    pub fn take_rest(&mut self, input: &mut Vec<u8>) {
        if let Some(body) = &mut self.body
            && body.len() > self.len
        {
            input.extend_from_slice(&body[self.len..]);
            body.truncate(self.len);
        }
    }

    pub(crate) fn begin_request(&mut self) {
        self.before = self.whole.len();
    }

    pub(crate) fn begin(&mut self, len: usize) {
        let room = if len >= ROOMY_MIN { ROOM } else { 0 };
        self.body = Some(Vec::with_capacity(len + room));
        self.len = len;
    }

    /// Takes from the front of `bytes` what is missing. Returns how many bytes that were once
    /// nothing is missing any more.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let count = bytes.len().min(self.missing());
        if let Some(body) = &mut self.body {
            body.extend_from_slice(&bytes[..count]);
        }
        if self.missing() > 0 {
            self.taken = count;
            return None;
        }
        Some(count)
    }

    /// The argument is whole: returns its number.
    pub(crate) fn finish(&mut self) -> usize {
        self.whole.push(Arc::new(self.body.take().unwrap_or_default()));
        self.whole.len() - 1
    }

    pub(crate) fn whole(&self) -> &[Arc<Vec<u8>>] {
        &self.whole
    }

    /// Forgets those of requests before the one at the front. Returns how many they were.
    pub(crate) fn forget_before(&mut self) -> usize {
        let forgotten = std::mem::take(&mut self.before);
        self.whole.drain(..forgotten);
        forgotten
    }

    /// Bytes that are here, and the memory set aside for them.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let texts = || self.whole.iter().map(|text| &**text).chain(&self.body);
        (texts().map(Vec::len).sum(), texts().map(Vec::capacity).sum())
    }
}
