//! Replication between our server and real ones.

mod encrypted;
mod failover;
mod link;
mod peers;
mod primary;
mod replica;
mod rolling;
mod same_words;
pub(crate) mod support;
mod waiting;
