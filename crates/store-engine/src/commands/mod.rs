//! The command table, family by family, and what commands and engine share.

mod bits;
mod collection;
mod command_info;
mod config;
mod connection;
mod dump;
mod element_scan;
mod expire;
mod geo;
mod hashes;
mod help;
mod hyperloglog;
mod info;
mod keys;
mod lists;
mod object;
mod prelude;
mod scan;
mod sets;
mod sort;
mod sorted_sets;
mod streams;
mod strings;
mod transaction;

use store_resp::Request;

use crate::command::Command;
use crate::context::Context;
use crate::effects::KeyEvent;
use crate::error::CommandResult;
use crate::keyspace::Keyspace;
use crate::session::{Session, SessionId};
use crate::state::ServerState;

pub(crate) use config::apply_settings;
pub(crate) use transaction::runs_inside_multi;

/// All families. Adding one is a line here and a file beside it.
pub(crate) const TABLES: &[&[Command]] = &[
    bits::TABLE,
    command_info::TABLE,
    connection::TABLE,
    config::TABLE,
    dump::TABLE,
    expire::TABLE,
    geo::TABLE,
    hashes::TABLE,
    hyperloglog::TABLE,
    info::TABLE,
    keys::TABLE,
    lists::TABLE,
    object::TABLE,
    scan::TABLE,
    sets::TABLE,
    sort::TABLE,
    sorted_sets::TABLE,
    streams::TABLE,
    strings::TABLE,
    transaction::TABLE,
];

/// Seam of `maxmemory`: makes room before a command that grows, or refuses it.
pub(crate) fn check_memory(_: &mut Context<'_>, _: &Command) -> CommandResult {
    Ok(())
}

/// Seam of MONITOR: shows the request to all who watch.
pub(crate) fn show_to_monitors(_: &mut Context<'_>, _: Request<'_>) {}

/// Seam of keyspace notifications: publishes `events`.
pub(crate) fn publish_events(
    _: &mut Keyspace,
    _: &mut ServerState,
    _: Vec<KeyEvent>,
    _: Option<(SessionId, usize)>,
) {
}

/// Seam of CLIENT TRACKING: tells trackers that `keys` changed; `None` stands for all keys.
pub(crate) fn invalidate_tracked(
    _: &mut Keyspace,
    _: &mut ServerState,
    _: Vec<Option<Box<[u8]>>>,
    _: Option<(SessionId, usize)>,
) {
}

/// RESET: leaves subscriptions, MONITOR, tracking and the like.
pub(crate) fn leave_all_modes(_: &mut Context<'_>) {}

/// A session ends: its watches, subscriptions and the like go.
pub(crate) fn forget_session(db: &mut Keyspace, _: &mut ServerState, session: &mut Session) {
    transaction::unwatch_all(db, session);
}
