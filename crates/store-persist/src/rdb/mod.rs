//! The snapshot file: everything the store holds at one moment.
