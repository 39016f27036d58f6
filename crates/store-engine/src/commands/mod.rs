//! The command table, family by family, and what commands and engine share.

mod acl;
mod bits;
mod client;
mod cluster;
mod collection;
mod command_info;
mod config;
mod connection;
mod debug;
mod docs;
mod dump;
mod element_scan;
mod expire;
mod geo;
mod hashes;
mod help;
mod hyperloglog;
mod info;
mod keys;
mod latency;
mod lists;
mod memory;
mod monitor;
mod news;
mod object;
mod partial_sort;
mod prelude;
mod pubsub;
mod saving;
mod scan;
mod scripting;
mod secrets;
mod server;
mod sets;
mod slowlog;
mod sort;
mod sorted_sets;
mod streams;
mod strings;
mod transaction;

use crate::command::Command;
use crate::context::Context;
use crate::keyspace::Keyspace;
use crate::session::Session;
use crate::state::ServerState;
#[cfg(test)]
pub(crate) use docs::made_up::arguments_of as made_up_arguments;

pub(crate) use acl::{load_acl_file, load_configured_users};
pub(crate) use client::{
    describe_client, end_pause, remember_keys, shrink_tracking, tell_before_reply,
};
pub(crate) use config::apply_settings;
pub(crate) use monitor::show_to_monitors;
pub(crate) use news::{tell_beside_reply, tell_news, tell_own_news, tell_untold};
pub(crate) use scripting::{check_busy, script_flags};
pub(crate) use slowlog::{Slow, note_latency, note_slow};
pub(crate) use transaction::end_transaction;

/// All families. Adding one is a line here and a file beside it.
pub(crate) const TABLES: &[&[Command]] = &[
    acl::TABLE,
    bits::TABLE,
    client::TABLE,
    cluster::TABLE,
    command_info::TABLE,
    config::TABLE,
    connection::TABLE,
    debug::TABLE,
    dump::TABLE,
    expire::TABLE,
    geo::TABLE,
    hashes::TABLE,
    hyperloglog::TABLE,
    info::TABLE,
    keys::TABLE,
    latency::TABLE,
    lists::TABLE,
    memory::TABLE,
    monitor::TABLE,
    object::TABLE,
    pubsub::TABLE,
    saving::TABLE,
    scan::TABLE,
    scripting::TABLE,
    server::TABLE,
    sets::TABLE,
    slowlog::TABLE,
    sort::TABLE,
    sorted_sets::TABLE,
    streams::TABLE,
    strings::TABLE,
    transaction::TABLE,
];

/// RESET: leaves subscriptions, MONITOR, tracking and the like.
pub(crate) fn leave_all_modes(cx: &mut Context<'_>) {
    leave_modes(cx.db, cx.server, cx.session);
}

/// A session ends: its watches, subscriptions and the like go.
pub(crate) fn forget_session(db: &mut Keyspace, server: &mut ServerState, session: &mut Session) {
    transaction::unwatch_all(db, session);
    leave_modes(db, server, session);
    client::watch_changes(db, server);
    server.postponed.retain(|id| *id != session.id);
}

fn leave_modes(db: &mut Keyspace, server: &mut ServerState, session: &mut Session) {
    server.pubsub.unsubscribe_all(session);
    client::leave_tracking(db, server, session);
    monitor::leave_monitor(server, session);
}
