//! A byte string that is short most of the time.

use std::sync::Arc;

/// What fits beside the tag in 24 bytes.
const INLINE_MAX: usize = 22;

/// Immutable bytes: up to 22 in place, longer ones shared. A copy never copies long bytes, which
/// is what lets a snapshot pin a table segment and a sorted set keep a member twice.
#[derive(Clone)]
pub(crate) enum Text {
    Inline { length: u8, bytes: [u8; INLINE_MAX] },
    Shared(Arc<[u8]>),
}

impl Text {
    #[inline]
    pub(crate) fn new(source: &[u8]) -> Self {
        if source.len() > INLINE_MAX {
            return Self::Shared(Arc::from(source));
        }
        let mut bytes = [0; INLINE_MAX];
        bytes[..source.len()].copy_from_slice(source);
        Self::Inline { length: source.len() as u8, bytes }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Shared(bytes) => bytes,
        }
    }

    /// Allocated bytes: none, or two counters and the text.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Shared(bytes) => (16 + bytes.len()).next_multiple_of(16),
        }
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_needs_no_allocation_and_long_text_is_shared() {
        assert_eq!(size_of::<Text>(), 24);
        for length in [0, 1, 22, 23, 1000] {
            let source = vec![b'x'; length];
            let text = Text::new(&source);
            assert_eq!(text.as_bytes(), source);
            assert_eq!(text.heap_bytes() == 0, length <= 22);
        }
    }
}
