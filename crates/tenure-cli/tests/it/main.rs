//! The built command from outside, on our own store and on redis-server.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod check_rdb;
mod cli;
mod crash;
mod demo;
mod deploy;
mod diary;
mod doctor;
mod exclusive;
mod failover_log;
mod foreground;
mod guard;
mod local;
mod look;
mod once;
mod operate;
mod quorum;
mod quorum_hand_over;
mod refusals;
mod run;
mod serve;
mod sidecar;
mod stage;
mod strict;
mod take_over;
