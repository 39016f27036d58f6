//! Real processes on real servers.
//!
//! What a trial records goes into a [`record::Record`]: who acted when, on one host clock, under
//! which token. The checkers there find overlaps and disorder, and are themselves tested on planted
//! ones.

pub mod cache;
pub mod clock;
pub mod cluster_load;
pub mod record;
pub mod rival;
pub mod stats;
pub mod storm;
pub mod torture;
