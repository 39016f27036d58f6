//! Where values change their encoding, and the names of the encodings.

/// The settings that decide on encodings. They are passed to every change, since CONFIG SET may
/// move them; a value already converted stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `hash-max-listpack-entries`.
    pub hash_listpack_entries_max: usize,
    /// `hash-max-listpack-value`.
    pub hash_listpack_value_max: usize,
    /// `set-max-intset-entries`.
    pub set_intset_entries_max: usize,
    /// `zset-max-listpack-entries`.
    pub zset_listpack_entries_max: usize,
    /// `zset-max-listpack-value`.
    pub zset_listpack_value_max: usize,
    /// `list-max-listpack-size`: elements per node, or −1 … −5 for 4 … 64 KiB.
    pub list_node_size: i32,
    /// `stream-node-max-bytes`; zero means no limit.
    pub stream_node_bytes_max: usize,
    /// `stream-node-max-entries`; zero means no limit.
    pub stream_node_entries_max: usize,
    /// `hll-sparse-max-bytes`.
    pub hll_sparse_bytes_max: usize,
    /// Secret of the process from which hash tables are keyed.
    pub hash_seed: u64,
}

impl Default for Limits {
    /// The defaults of Redis 7.0, with a hash seed of zero.
    fn default() -> Self {
        Self {
            hash_listpack_entries_max: 512,
            hash_listpack_value_max: 64,
            set_intset_entries_max: 512,
            zset_listpack_entries_max: 128,
            zset_listpack_value_max: 64,
            list_node_size: -2,
            stream_node_bytes_max: 4096,
            stream_node_entries_max: 100,
            hll_sparse_bytes_max: 3000,
            hash_seed: 0,
        }
    }
}

/// How a value is kept, by the names that OBJECT ENCODING reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A small hash or sorted set.
    Listpack,
    /// A small set of integers.
    Intset,
    /// A list of any size: Redis 7.0 has one name for all.
    Quicklist,
    /// A large hash, or a set with a member that is no integer.
    Hashtable,
    /// A large sorted set. Ours is a tree; clients know it by the name of Redis' structure.
    Skiplist,
    /// A stream.
    Stream,
}

impl Encoding {
    /// The name that OBJECT ENCODING reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Listpack => "listpack",
            Self::Intset => "intset",
            Self::Quicklist => "quicklist",
            Self::Hashtable => "hashtable",
            Self::Skiplist => "skiplist",
            Self::Stream => "stream",
        }
    }
}
