//! How much goes into one node, by the rules of `list-max-listpack-size`.

use crate::listpack::Listpack;

/// Elements per node when positive, a class of bytes when negative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill(pub(super) i32);

/// The bytes of the classes −1 to −5.
const CLASS_BYTES: [usize; 5] = [4096, 8192, 16_384, 32_768, 65_536];
/// A node that is counted in elements still holds no more bytes than this.
const COUNTED_BYTES_MAX: usize = 8192;
/// Redis' guess of what an element costs beside its text.
const ENTRY_OVERHEAD: usize = 8;
/// What Redis 7.0 takes off for the header and end that two nodes have and one does not. They take
/// seven bytes; eleven is what they took in a ziplist.
const MERGE_SAVING: usize = 11;

impl Fill {
    /// Whether an element of this length may join the node.
    #[inline]
    pub(super) fn allows_insert(self, pack: &Listpack, element_len: usize) -> bool {
        let bytes = pack.as_bytes().len() + element_len + ENTRY_OVERHEAD;
        self.allows(bytes, || pack.len() + 1)
    }

    /// Whether two nodes may become one.
    pub(super) fn allows_merge(self, left: &Listpack, right: &Listpack) -> bool {
        let bytes = left.as_bytes().len() + right.as_bytes().len() - MERGE_SAVING;
        self.allows(bytes, || left.len() + right.len())
    }

    #[inline]
    fn allows(self, bytes: usize, count: impl FnOnce() -> usize) -> bool {
        match usize::try_from(self.0) {
            Ok(count_max) => bytes <= COUNTED_BYTES_MAX && count() <= count_max.max(1),
            Err(_) => {
                let class = self.0.unsigned_abs() as usize - 1;
                bytes <= CLASS_BYTES[class.min(CLASS_BYTES.len() - 1)]
            }
        }
    }
}
