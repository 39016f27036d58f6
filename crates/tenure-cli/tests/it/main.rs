//! The built command from outside, on our own store and on redis-server.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod check_rdb;
mod cli;
mod closing;
mod crash;
mod cron;
mod demo;
mod deploy;
mod diary;
mod doctor;
mod exclusive;
mod foreground;
mod guard;
mod guard_faults;
mod headless;
mod hostile;
mod instance;
mod local;
mod local_lock;
mod local_place;
mod local_proof;
mod local_silent;
mod local_stop;
mod look;
mod memory;
mod nested;
mod once;
mod operate;
mod orphans;
mod quorum;
mod quorum_succession;
mod refusals;
mod restored;
mod run;
mod serve;
mod serve_forms;
mod sidecar;
mod stage;
mod stderr;
mod stdout;
mod take_over;
mod upgrade;
mod words;
mod wrong_address;
mod zombies;
