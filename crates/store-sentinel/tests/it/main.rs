//! A sentinel among scripted servers and sentinels.

mod failover;
mod story;
mod votes;
