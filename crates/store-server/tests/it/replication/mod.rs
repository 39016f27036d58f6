//! Replication between our server and real ones.

mod replica;
