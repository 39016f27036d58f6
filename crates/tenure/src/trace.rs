//! The log: one event per transition, with the same fields each time.
//!
//! Everything that came from outside passes through `Reason`'s own display, which escapes control
//! characters and cuts long text. Nothing here ever holds a password.

use tenure_core::{Event, EventKind, Reason, Role};

use crate::driver::is_involuntary;
use crate::state::ElectionState;

/// What the log must know of an election beside its state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// A single try: what goes as planned is no news, for somebody may make one every second.
    pub(crate) is_single: bool,
    /// Trouble with the store was told and is not over yet.
    pub(crate) in_trouble: bool,
}

/// News of an election, or of a single try, which is worth less.
macro_rules! news {
    ($circumstances:expr, $($rest:tt)+) => {
        match $circumstances.is_single {
            true => tracing::debug!(target: "tenure", $($rest)+),
            false => tracing::info!(target: "tenure", $($rest)+),
        }
    };
}

/// Writes an event to the log, unless it is of no interest to people.
pub(crate) fn log(state: &ElectionState, event: &Event, circumstances: Circumstances) {
    let resource = state.resource.name();
    let id = state.id.as_str();
    match &event.kind {
        EventKind::Acquired { token, .. } => {
            let token = token.get();
            news!(
                circumstances,
                resource,
                id,
                role = "leader",
                token,
                reason = "granted",
                "leader: acquired"
            );
        }
        EventKind::Lost { token, reason } if is_involuntary(reason) => {
            let token = token.get();
            tracing::error!(target: "tenure", resource, id, role = "standby", token,
                reason = reason.code(), detail = %reason, "leader: lost");
        }
        EventKind::Lost { token, reason } => {
            let token = token.get();
            news!(circumstances, resource, id, role = "standby", token, reason = reason.code(),
                detail = %reason, "leader: given up");
        }
        EventKind::StateChanged { from, to, reason } => {
            log_role(state, (*from, *to), reason, circumstances);
        }
        EventKind::Overrun { token } => {
            let (token, role) = (token.get(), state.status.borrow().role.as_str());
            tracing::error!(target: "tenure", resource, id, role, token, reason = "overrun",
                "work is still running at the end of its grace");
        }
        EventKind::HandedOver { token, to } => {
            let token = token.get();
            tracing::info!(target: "tenure", resource, id, role = "standby", token,
                reason = "hand-over", to = to.as_str(), "leader: handed over");
        }
        EventKind::HandOverRefused { why } => {
            tracing::warn!(target: "tenure", resource, id, reason = "refused",
                detail = %why.escape_debug(), "hand-over refused");
        }
        EventKind::Warning(text) => {
            tracing::warn!(target: "tenure", resource, id, detail = %text.escape_debug(),
                "warning");
        }
        _ => {}
    }
}

/// A change that somebody on call should see is a warning; coming back is told as well.
fn log_role(
    state: &ElectionState,
    (from, to): (Role, Role),
    reason: &Reason,
    circumstances: Circumstances,
) {
    let (resource, id, role) = (state.resource.name(), state.id.as_str(), to.as_str());
    let (reason, detail) = (reason.code(), reason);
    match (from, to) {
        (_, Role::Unknown | Role::Suspect) => {
            tracing::warn!(target: "tenure", resource, id, role, reason, %detail,
                "trouble with the store");
        }
        // The first answer after the start is no news.
        (Role::Unknown, Role::Standby | Role::Leader) if !circumstances.in_trouble => {
            tracing::debug!(target: "tenure", resource, id, role, reason, %detail, "role changed");
        }
        (Role::Unknown | Role::Suspect, Role::Standby | Role::Leader) => {
            tracing::info!(target: "tenure", resource, id, role, reason, %detail,
                "the store answers");
        }
        _ => {
            tracing::debug!(target: "tenure", resource, id, role, reason, %detail, "role changed");
        }
    }
}

/// Why nobody leads here, told once for as long as the reason stays the same: an election that
/// waits is silent otherwise, and somebody on call must not have to guess.
pub(crate) fn log_wait(state: &ElectionState, reason: &Reason, circumstances: Circumstances) {
    let (resource, id) = (state.resource.name(), state.id.as_str());
    let (code, detail) = (reason.code(), reason);
    match reason {
        // Whoever made the try is told.
        _ if circumstances.is_single => {
            tracing::debug!(target: "tenure", resource, id, reason = code, %detail, "not granted");
        }
        Reason::Store(_) | Reason::Conflict(_) => {
            tracing::warn!(target: "tenure", resource, id, reason = code, %detail,
                "cannot contend");
        }
        Reason::Quarantine { .. } | Reason::PausedByOperator | Reason::LockDelay(_) => {
            tracing::info!(target: "tenure", resource, id, reason = code, %detail, "waits");
        }
        _ => {}
    }
}
