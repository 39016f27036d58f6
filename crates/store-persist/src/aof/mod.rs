//! The append-only file: base, increments and manifest.
