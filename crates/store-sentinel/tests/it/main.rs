//! A sentinel among scripted servers and sentinels.

mod copies;
mod epochs;
mod failover;
mod histories;
mod story;
mod votes;
