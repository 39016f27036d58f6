//! Elect one leader among many processes, and make that leadership safe to act on.

pub mod backend;
pub mod fence;

pub use tenure_core as core;
