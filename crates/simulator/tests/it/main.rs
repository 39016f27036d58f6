//! A bounded slice of what `cargo xtask simulate` runs.

mod controls;
mod promises;
mod replay;
