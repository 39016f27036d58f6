//! Elect one leader among many processes, and make that leadership safe to act on.

pub mod backend;

pub use tenure_core as core;
