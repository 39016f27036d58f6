//! A bounded slice of what `cargo xtask simulate store` runs.

mod replication;
mod sentinel;
