//! The gate: whether a user may run a request.

use store_resp::Request;
use store_types::glob;

use super::add_to_log;
use super::log::Reason;
use super::user::{Selector, User};
use crate::command::{Channels, Command, access, flag};
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::key_finder::{self, FoundKey};
use crate::pubsub::{Subscriptions, TopicKind};
use crate::registry::{Registry, RowId};

/// What a request was denied for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Denied {
    pub(crate) reason: Reason,
    /// Which argument, for keys and channels.
    pub(crate) arg: usize,
}

/// Checks a restricted session's request, logging a denial.
pub(crate) fn check(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let verdict = match cx.server.acl.user(&cx.session.user) {
        Some(user) => verdict(user, &cx.server.registry, cx.row, request),
        // Removed meanwhile: the session is about to be closed.
        None => Err(Denied { reason: Reason::Command, arg: 0 }),
    };
    verdict.map_err(|denied| {
        log(cx, request, denied);
        CommandError::new(format!("NOPERM {}", text(&cx.server.registry, cx.row, denied)))
    })
}

/// Checks a queued request once more: rules may have changed since.
pub(crate) fn check_queued(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let user = cx.server.acl.user(&cx.session.user);
    let admitted = user.map_or(Err(Denied { reason: Reason::Command, arg: 0 }), |user| {
        verdict(user, &cx.server.registry, cx.row, request)
    });
    admitted.map_err(|denied| {
        log(cx, request, denied);
        let reason = match denied.reason {
            Reason::Key => "no permission to touch the specified keys",
            Reason::Channel => "no permission to access one of the channels used as arguments",
            _ => "no permission to execute the command or subcommand",
        };
        CommandError::new(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and \
             the EXEC call. This command is no longer allowed for the following reason: {reason}"
        ))
    })
}

/// Checks what a script calls, with the rules of the session that runs the script.
pub(crate) fn check_scripted(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    verdict_of(cx, request).map_err(|denied| {
        log(cx, request, denied);
        let reason = match denied.reason {
            Reason::Key => "access at least one of the keys mentioned in the command arguments",
            Reason::Channel => "publish to the channel mentioned in the command",
            _ => "run this command or subcommand",
        };
        CommandError::new(format!("ERR The user executing the script can't {reason}"))
    })
}

/// Whether the session's user may run the request, which is not logged.
pub(crate) fn verdict_of(cx: &Context<'_>, request: Request<'_>) -> Result<(), Denied> {
    match cx.server.acl.user(&cx.session.user) {
        Some(user) => verdict(user, &cx.server.registry, cx.row, request),
        // Removed meanwhile: the session is about to be closed.
        None => Err(Denied { reason: Reason::Command, arg: 0 }),
    }
}

fn log(cx: &mut Context<'_>, request: Request<'_>, denied: Denied) {
    let name = cx.server.registry.row(cx.row).full_name.clone();
    let object = match denied.reason {
        Reason::Key | Reason::Channel => request.get(denied.arg).unwrap_or_default(),
        Reason::Command | Reason::Auth => name.as_bytes(),
    };
    add_to_log(cx, denied.reason, object, None);
}

fn text(registry: &Registry, row: RowId, denied: Denied) -> String {
    let user = "this user has no permissions to";
    match denied.reason {
        Reason::Key => format!("{user} access one of the keys used as arguments"),
        Reason::Channel => format!("{user} access one of the channels used as arguments"),
        _ => format!("{user} run the '{}' command", registry.row(row).full_name),
    }
}

/// Whether the user may run the request. Of several denials the one that came furthest is told.
pub(crate) fn verdict(
    user: &User,
    registry: &Registry,
    row: RowId,
    request: Request<'_>,
) -> Result<(), Denied> {
    let command = registry.row(row).command;
    // `None` when the arguments make no sense: then no pattern admits them.
    let mut keys: Option<Option<Vec<FoundKey>>> = None;
    let mut worst = Denied { reason: Reason::Command, arg: 0 };
    for selector in user.all_selectors() {
        let denied = match check_selector(selector, registry, row, command, request, &mut keys) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        worst = worst.max(denied);
    }
    Err(worst)
}

fn check_selector(
    selector: &Selector,
    registry: &Registry,
    row: RowId,
    command: &Command,
    request: Request<'_>,
    keys: &mut Option<Option<Vec<FoundKey>>>,
) -> Result<(), Denied> {
    if !selector.all_commands && !command.has(flag::NO_AUTH) && !selector.commands.has(row) {
        let at = if registry.row(row).parent.is_some() { 2 } else { 1 };
        let allowed = selector.first_args.get(&row.index()).map_or(&[][..], Vec::as_slice);
        let first = request.get(at).unwrap_or_default();
        if !allowed.iter().any(|arg| arg.eq_ignore_ascii_case(first)) {
            return Err(Denied { reason: Reason::Command, arg: 0 });
        }
    }
    if !selector.all_keys && !command.keys.is_empty() {
        let found = keys.get_or_insert_with(|| key_finder::keys_of(command, request));
        let Some(found) = found else { return Err(Denied { reason: Reason::Key, arg: 1 }) };
        for key in found {
            if !admits_key(selector, request.arg(key.arg), key.access) {
                return Err(Denied { reason: Reason::Key, arg: key.arg });
            }
        }
    }
    if !selector.all_channels {
        check_channels(selector, command, request)?;
    }
    Ok(())
}

fn admits_key(selector: &Selector, key: &[u8], bits: u32) -> bool {
    let reads = bits & access::ACCESS != 0;
    let writes = bits & (access::INSERT | access::DELETE | access::UPDATE) != 0;
    selector.keys.iter().any(|allowed| {
        (allowed.read || !reads)
            && (allowed.write || !writes)
            && glob::matches(&allowed.pattern, key, glob::Case::Sensitive)
    })
}

fn check_channels(
    selector: &Selector,
    command: &Command,
    request: Request<'_>,
) -> Result<(), Denied> {
    let last = match command.channels {
        Channels::None => return Ok(()),
        Channels::First => 1,
        Channels::All | Channels::Patterns => request.len() - 1,
    };
    let is_pattern = command.channels == Channels::Patterns;
    let denied = (1..=last).find(|arg| !admits_channel(selector, request.arg(*arg), is_pattern));
    denied.map_or(Ok(()), |arg| Err(Denied { reason: Reason::Channel, arg }))
}

/// A pattern is admitted only when it is itself one of the rules.
fn admits_channel(selector: &Selector, channel: &[u8], is_pattern: bool) -> bool {
    selector.channels.iter().any(|allowed| match is_pattern {
        true => allowed == channel,
        false => glob::matches(allowed, channel, glob::Case::Sensitive),
    })
}

/// Whether everything a session listens to is still admitted by some selector of its user.
pub(crate) fn allows_channels(user: &User, held: &Subscriptions) -> bool {
    let admitted = |topic: &[u8], is_pattern| {
        user.all_selectors()
            .any(|selector| selector.all_channels || admits_channel(selector, topic, is_pattern))
    };
    TopicKind::ALL
        .iter()
        .all(|kind| held.of(*kind).iter().all(|topic| admitted(topic, *kind == TopicKind::Pattern)))
}

/// Whether the session may run the command of `row` whatever keys it names: what SORT needs for
/// BY and GET, whose keys no rule finds.
pub(crate) fn may_read_all_keys(cx: &Context<'_>, row: RowId) -> bool {
    let Some(user) = cx.server.acl.user(&cx.session.user) else { return false };
    let reads_all = |selector: &Selector| {
        selector.all_keys || selector.keys.iter().any(|key| key.pattern == b"*" && key.read)
    };
    user.all_selectors().any(|selector| {
        (selector.all_commands || selector.commands.has(row)) && reads_all(selector)
    })
}
