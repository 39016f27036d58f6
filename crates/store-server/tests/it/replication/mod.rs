//! Replication between our server and real ones.

mod encrypted;
mod failover;
mod hostile;
mod link;
mod peers;
mod primary;
mod replica;
mod restart;
mod rolling;
mod same_words;
pub(crate) mod support;
mod waiting;
