//! The log: one event per transition, with the same fields each time.
//!
//! Everything that came from outside passes through `Reason`'s own display, which escapes control
//! characters and cuts long text. Nothing here ever holds a password.

use tenure_core::{Event, EventKind, Role, Token};

use crate::driver::is_involuntary;
use crate::state::ElectionState;
use crate::term::TermState;

/// Writes an event to the log, unless it is of no interest to people.
pub(crate) fn log(state: &ElectionState, term: Option<&TermState>, event: &Event) {
    let resource = state.resource.name();
    let id = state.id.as_str();
    let token = term.map_or(Token::NONE, |term| term.token).get();
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
        EventKind::StateChanged { to: to @ (Role::Unknown | Role::Suspect), reason, .. } => {
            tracing::warn!(target: "tenure", resource, id, role = to.as_str(), token,
                reason = reason.code(), detail = %reason, "leader: the store does not answer");
        }
        EventKind::StateChanged { to, reason, .. } => {
            tracing::debug!(target: "tenure", resource, id, role = to.as_str(), token,
                reason = reason.code(), detail = %reason, "role changed");
        }
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
            tracing::warn!(target: "tenure", resource, id, token,
                reason = "refused", detail = why.escape_debug().to_string(), "hand-over refused");
        }
        EventKind::Warning(text) => {
            tracing::warn!(target: "tenure", resource, id, token,
                detail = text.escape_debug().to_string(), "warning");
        }
        _ => {}
    }
}
