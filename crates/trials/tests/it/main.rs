//! What must happen when processes die, stop and lose their store: shown on the real thing.

// A test that cannot go on ends there.
#![allow(clippy::unwrap_used)]

mod acl;
mod bad_input;
mod cache;
mod cluster_load;
mod crowd;
mod features;
mod foreign;
mod heartbeat;
mod instance;
mod keys;
mod members;
mod player;
mod processes;
mod replicated;
mod secrets;
mod storm;
mod succession;
mod succession_faults;
mod succession_quorum;
mod tokens;
mod torture;
mod wall_clock;
mod weather;
