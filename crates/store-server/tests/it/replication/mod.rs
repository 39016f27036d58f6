//! Replication between our server and real ones.

mod link;
mod peers;
mod primary;
mod replica;
mod support;
mod waiting;
