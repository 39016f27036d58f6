//! The sidecar over real sockets, on redis-server and on the embedded store.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod access;
mod alerts;
mod browser;
mod callers;
mod dashboard;
mod events;
mod hooks;
mod http;
mod leader;
mod metrics;
mod openmetrics;
mod page;
mod routes;
mod slow;
mod stage;
mod stale;
mod strict;
mod truth;
mod unix;
mod webhooks;
