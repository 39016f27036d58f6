//! The log: one event per transition, with the same fields each time.
//!
//! Everything that came from outside passes through `Reason`'s own display, which escapes control
//! characters and cuts long text. Nothing here ever holds a password.

use tenure_core::{Event, EventKind, Reason, Role};

use crate::driver::is_involuntary;
use crate::state::ElectionState;

/// Writes an event to the log, unless it is of no interest to people.
pub(crate) fn log(state: &ElectionState, event: &Event) {
    let resource = state.resource.name();
    let id = state.id.as_str();
    match &event.kind {
        EventKind::Acquired { token, .. } => {
            let token = token.get();
            tracing::info!(target: "tenure", resource, id, role = "leader", token,
                reason = "granted", "leader: acquired");
        }
        EventKind::Lost { token, reason } if is_involuntary(reason) => {
            let token = token.get();
            tracing::error!(target: "tenure", resource, id, role = "standby", token,
                reason = reason.code(), detail = %reason, "leader: lost");
        }
        EventKind::Lost { token, reason } => {
            let token = token.get();
            tracing::info!(target: "tenure", resource, id, role = "standby", token,
                reason = reason.code(), detail = %reason, "leader: given up");
        }
        EventKind::StateChanged { from, to, reason } => log_role(state, *from, *to, reason),
        EventKind::Overrun { token } => {
            let token = token.get();
            tracing::error!(target: "tenure", resource, id, role = "yielding", token,
                reason = "overrun", "work is still running at the end of its grace");
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
fn log_role(state: &ElectionState, from: Role, to: Role, reason: &Reason) {
    let (resource, id, role) = (state.resource.name(), state.id.as_str(), to.as_str());
    let (reason, detail) = (reason.code(), reason);
    match (from, to) {
        (_, Role::Unknown | Role::Suspect) => {
            tracing::warn!(target: "tenure", resource, id, role, reason, %detail,
                "trouble with the store");
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
pub(crate) fn log_wait(state: &ElectionState, reason: &Reason) {
    let (resource, id) = (state.resource.name(), state.id.as_str());
    let (code, detail) = (reason.code(), reason);
    match reason {
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
