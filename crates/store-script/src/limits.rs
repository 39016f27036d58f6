//! What scripts may use at most.

/// Bounds on scripts. The defaults suit a server that serves strangers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of Lua memory one run may add. Beyond, the run fails with "not enough memory".
    pub memory_max: usize,
    /// Bytes of source text of one script or library.
    pub source_max: usize,
    /// Bytes and elements of what one run answers: a small table can hold itself many times.
    pub reply_max: usize,
    /// Scripts that came by EVAL and are kept for EVALSHA; the longest unused is dropped first.
    pub evaluated_count_max: usize,
    /// Bytes of source text of those scripts together.
    pub evaluated_bytes_max: usize,
    /// Bytes of source text of all scripts that came by SCRIPT LOAD. These are never dropped,
    /// since their callers rely on them: past the limit, loading is refused.
    pub loaded_bytes_max: usize,
    /// Bytes of source text of all libraries together.
    pub libraries_bytes_max: usize,
    /// Functions of all libraries together.
    pub functions_max: usize,
    /// Virtual machine instructions between two calls of [`Host::tick`](crate::Host::tick).
    pub tick_instructions: u32,
    /// Units of work in library functions between two ticks. A unit is a step of a search: some
    /// nanoseconds.
    pub tick_work: u64,
    /// Ticks after which the loading of a library is ended.
    pub library_ticks_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_max: 64 << 20,
            source_max: 4 << 20,
            reply_max: 64 << 20,
            // As many as later versions of Redis keep.
            evaluated_count_max: 500,
            evaluated_bytes_max: 16 << 20,
            loaded_bytes_max: 64 << 20,
            libraries_bytes_max: 64 << 20,
            functions_max: 100_000,
            // About a fifth of a millisecond.
            tick_instructions: 20_000,
            tick_work: 40_000,
            // About half a second of work, which is what Redis grants.
            library_ticks_max: 2500,
        }
    }
}
