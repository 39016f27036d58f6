//! Files: what the engine wants kept, on the disk.

pub(crate) mod snapshot;
