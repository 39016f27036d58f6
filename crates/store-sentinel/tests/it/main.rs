//! A sentinel among scripted servers and sentinels.

mod epochs;
mod failover;
mod story;
mod votes;
