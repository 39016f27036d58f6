//! The command table, family by family, and what commands and engine share.

mod bits;
pub(crate) mod client;
mod collection;
mod command_info;
mod connection;
mod debug;
mod docs;
mod dump;
mod element_scan;
mod expire;
mod geo;
mod hashes;
pub(crate) mod help;
mod hyperloglog;
mod info;
mod keys;
mod lists;
mod memory;
pub(crate) mod monitor;
mod object;
mod partial_sort;
pub(crate) mod prelude;
mod scan;
pub(crate) mod secrets;
mod server;
mod sets;
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
use crate::{
    acl, cluster, config, latency, persistence, pubsub, replication, scripting, slow_log, tracking,
};
#[cfg(test)]
pub(crate) use docs::made_up::arguments_of as made_up_arguments;

pub(crate) use client::{begin_pause, describe_client, end_pause, resume_postponed};
pub(crate) use monitor::show_to_monitors;
pub(crate) use transaction::end_transaction;

/// All families. Adding one is a line here and a file beside it. What keeps more than keys has its
/// commands beside that.
pub(crate) const TABLES: &[&[Command]] = &[
    acl::commands::TABLE,
    bits::TABLE,
    client::TABLE,
    cluster::commands::TABLE,
    command_info::TABLE,
    config::commands::TABLE,
    connection::TABLE,
    debug::TABLE,
    dump::TABLE,
    expire::TABLE,
    geo::TABLE,
    hashes::TABLE,
    hyperloglog::TABLE,
    info::TABLE,
    keys::TABLE,
    latency::commands::TABLE,
    lists::TABLE,
    memory::TABLE,
    monitor::TABLE,
    object::TABLE,
    pubsub::commands::TABLE,
    persistence::commands::TABLE,
    replication::commands::TABLE,
    scan::TABLE,
    scripting::commands::TABLE,
    server::TABLE,
    sets::TABLE,
    slow_log::commands::TABLE,
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
    tracking::commands::watch_changes(db, server);
    server.postponed.retain(|id| *id != session.id);
}

fn leave_modes(db: &mut Keyspace, server: &mut ServerState, session: &mut Session) {
    server.pubsub.unsubscribe_all(session);
    tracking::commands::leave_tracking(db, server, session);
    monitor::leave_monitor(server, session);
}
