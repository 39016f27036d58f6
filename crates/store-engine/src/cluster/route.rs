//! The step of the gate that sends requests to the node that serves their keys.

use store_cluster::{Refusal, RouteRequest, Verdict};
use store_resp::Request;
use store_resp::slot::slot_of;

use super::ClusterState;
use crate::cluster::show::endpoint_of;
use crate::command::{Begin, Command, Find, access, flag};
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::key_finder::slot_keys_of;
use crate::session::session_flag;

/// Whether a request has one key, and its slot is served here and nowhere else: most have, so this
/// must be quick.
#[inline]
pub(crate) fn is_plainly_here(
    state: &ClusterState,
    command: &Command,
    request: Request<'_>,
) -> bool {
    let Some(at) = only_key(command) else {
        return command.keys.is_empty() && !is_special(command);
    };
    state.machine.is_plainly_here(slot_of(request.arg(at)))
}

fn is_special(command: &Command) -> bool {
    command.find_keys.is_some() || command.has(flag::RUNS_QUEUED)
}

/// The place of the key, where there is exactly one and always in that place.
fn only_key(command: &Command) -> Option<usize> {
    let [spec] = command.keys else { return None };
    let has_more = spec.access & (access::NOT_KEY | access::INCOMPLETE) != 0;
    match (spec.begin, spec.find) {
        (Begin::Index(at), Find::Range { last: 0, .. }) if !has_more && !is_special(command) => {
            Some(at)
        }
        _ => None,
    }
}

/// Whether the request may run here. EXEC is asked about with all that was queued.
pub(crate) fn check(cx: &Context<'_>, request: Request<'_>, is_write: bool) -> CommandResult {
    let Some(state) = &cx.server.cluster else { return Ok(()) };
    let command = cx.server.registry.row(cx.row).command;
    let mut keys = Vec::new();
    match &cx.session.transaction {
        Some(held) if command.has(flag::RUNS_QUEUED) => {
            for (row, queued) in &held.queued {
                let queued_command = cx.server.registry.row(*row).command;
                slot_keys_of(queued_command, queued.as_request(), &mut keys);
            }
        }
        _ => slot_keys_of(command, request, &mut keys),
    }
    match refusal(cx, state, command, &keys, is_write) {
        Some(refusal) => Err(refused(cx, state, &refusal)),
        None => Ok(()),
    }
}

fn refusal(
    cx: &Context<'_>,
    state: &ClusterState,
    command: &Command,
    keys: &[&[u8]],
    is_write: bool,
) -> Option<Refusal> {
    let request = RouteRequest {
        keys,
        is_write,
        is_asking: cx.session.has(session_flag::ASKING) || command.has(flag::ASKING),
        is_read_only_session: cx.session.has(session_flag::READS_REPLICA),
        is_migrate: command.has(flag::MOVES_KEYS),
        is_shard_channel: command.keys.iter().any(|spec| spec.access & access::NOT_KEY != 0),
    };
    match state.machine.route(request, |key| is_here(cx, key)) {
        // Keys of another time are being removed from there.
        Verdict::Here if is_emptied(cx, keys) => Some(Refusal::TryAgain),
        Verdict::Here => None,
        Verdict::Refused(refusal) => Some(refusal),
    }
}

/// A key on its way counts until the other node has it, also when it ends meanwhile: whoever was
/// sent there would write to it, and what is sent from here would come later.
fn is_here(cx: &Context<'_>, key: &[u8]) -> bool {
    cx.db.is_present(key) || cx.server.migrations.leaving.contains(cx.db.selected(), key)
}

fn is_emptied(cx: &Context<'_>, keys: &[&[u8]]) -> bool {
    let is_emptied = |key: &&[u8]| cx.db.is_emptied(slot_of(key));
    cx.db.has_emptied_slots() && keys.first().is_some_and(is_emptied)
}

/// What a client reads.
pub(super) fn refused(cx: &Context<'_>, state: &ClusterState, refusal: &Refusal) -> CommandError {
    CommandError::new(refusal_text(state, refusal, cx.server.config.settings(), cx.session))
}

pub(super) fn refusal_text(
    state: &ClusterState,
    refusal: &Refusal,
    settings: &crate::config::Settings,
    session: &crate::session::Session,
) -> String {
    let (word, slot, node) = match refusal {
        Refusal::Moved { slot, node, .. } => ("MOVED", slot, node),
        Refusal::Ask { slot, node, .. } => ("ASK", slot, node),
        other => return other.to_string(),
    };
    let Some(node) = state.machine.nodes().get(*node) else { return refusal.to_string() };
    let endpoint = endpoint_of(settings, session, node);
    let (host, port) = (endpoint.host.unwrap_or_default(), endpoint.port);
    format!("{word} {slot} {host}:{port}")
}

/// What scripts call must be here, too. `running_slot` is the slot of the keys that the script was
/// started with, once that is known.
pub(crate) fn check_scripted(
    cx: &mut Context<'_>,
    command: &Command,
    request: Request<'_>,
) -> CommandResult {
    const MUST_OBEY: u32 = session_flag::LOADER | session_flag::PRIMARY_LINK;
    let Some(state) = cx.server.cluster.as_deref().filter(|_| !cx.session.has(MUST_OBEY)) else {
        return Ok(());
    };
    let mut keys = Vec::new();
    slot_keys_of(command, request, &mut keys);
    let slot = keys.first().map(|key| slot_of(key));
    let refused = refusal(cx, state, command, &keys, command.has(flag::WRITE));
    let text = match refused.filter(|refusal| !may_go_on(cx, refusal, &keys)) {
        Some(Refusal::DownForWrites) => {
            "ERR Script attempted to execute a write command while the cluster is down and readonly"
        }
        Some(Refusal::Down) => {
            "ERR Script attempted to execute a command while the cluster is down"
        }
        Some(_) => "ERR Script attempted to access a non local key in a cluster node",
        None => {
            note_served(cx, slot);
            return check_same_slot(cx, slot);
        }
    };
    Err(CommandError::text(text))
}

/// How a slot was served when a script first used it. Other nodes are heard while it runs, and what
/// they say must not end it half-way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedSlot {
    is_ok: bool,
    /// By this node, and not by its master.
    is_here: bool,
    is_migrating: bool,
    is_importing: bool,
}

fn note_served(cx: &mut Context<'_>, slot: Option<u16>) {
    let server = &mut *cx.server;
    let (Some(slot), Some(cluster), Some(running)) =
        (slot, &server.cluster, &mut server.scripting.running)
    else {
        return;
    };
    running.served.entry(slot).or_insert_with(|| {
        let machine = &cluster.machine;
        let owner = machine.owner(slot).and_then(|owner| machine.nodes().get(owner));
        let is_importing = machine.importing_from(slot).is_some();
        ServedSlot {
            is_ok: machine.is_ok(),
            is_here: is_importing || owner.is_some_and(|owner| owner.id == machine.me().id),
            is_migrating: machine.migrating_to(slot).is_some(),
            is_importing,
        }
    });
}

/// Whether a script is refused only because of what happened since it began. A key that may be at
/// the other side of a move is refused all the same.
fn may_go_on(cx: &Context<'_>, refusal: &Refusal, keys: &[&[u8]]) -> bool {
    let running = cx.server.scripting.running.as_ref();
    let slot = keys.first().map(|key| slot_of(key));
    let served = running.zip(slot).and_then(|(running, slot)| running.served.get(&slot));
    let Some(served) = served else { return false };
    let has_changed = match refusal {
        Refusal::Down | Refusal::DownForWrites => served.is_ok,
        Refusal::Moved { .. } | Refusal::SlotNotServed => served.is_ok && served.is_here,
        Refusal::Ask { .. } | Refusal::TryAgain | Refusal::CrossSlot => false,
    };
    let is_whole = !served.is_migrating && (keys.len() == 1 || !served.is_importing);
    has_changed && (is_whole || keys.iter().all(|key| cx.db.is_present(key)))
}

/// All keys of one script have one slot, unless it says that it does otherwise.
fn check_same_slot(cx: &mut Context<'_>, slot: Option<u16>) -> CommandResult {
    let (Some(slot), Some(running)) = (slot, cx.server.scripting.running.as_mut()) else {
        return Ok(());
    };
    if running.may_cross_slots || *running.slot.get_or_insert(slot) == slot {
        return Ok(());
    }
    let text = "ERR Script attempted to access keys that do not hash to the same slot";
    Err(CommandError::text(text))
}
