//! The library from outside: its surface on elections in memory, its backend on real servers.

// A test that cannot go on ends there.
#![allow(clippy::unwrap_used)]

mod actor;
mod blocking;
mod broken;
mod config;
mod configured;
mod conformance;
mod embedded;
mod events;
mod failback;
mod fence;
mod leader_only;
mod lifecycle;
mod listeners;
mod lock;
mod looking_on;
mod memory;
mod once;
mod outages;
mod process;
mod quorum_nodes;
mod redis_cluster;
mod redis_foreign;
mod redis_foreign_words;
mod redis_hostile;
mod redis_last_words;
mod redis_messages;
mod redis_misdirected;
mod redis_protocol;
mod redis_quarantine;
mod redis_quorum;
mod redis_refusal;
mod redis_sentinel;
mod redis_strict;
mod redis_succession;
mod redis_ticks;
mod redis_tls;
mod redis_trouble;
mod settings;
mod starved;
mod work;
