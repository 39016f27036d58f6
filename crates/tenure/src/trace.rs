//! The log: one line per change, with the same fields each time and the next step in `detail`.
//!
//! What a reader on call needs: when leadership changes, one line; when the store gives trouble,
//! one line at its beginning and one at its end, however many requests fail in between and in
//! however many words. Everything that came from outside passes through `Reason`'s own display or
//! [`OneLine`], which escape control characters. Nothing here ever holds a password.

use std::fmt;

use tenure_core::text::escaped;
use tenure_core::{Event, EventKind, Reason, Role, StoreError};

use crate::backend::Connection;
use crate::state::ElectionState;

/// What the log must know of an election beside its state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogContext {
    /// A single try: what goes as planned is no news, for somebody may make one every second.
    pub(crate) is_single: bool,
    /// Trouble with the store that was told and is not over yet.
    pub(crate) trouble: Option<Trouble>,
}

/// What kind of trouble with the store was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// It may pass by itself.
    Passing,
    /// A person has to act.
    Lasting,
}

impl Trouble {
    /// The trouble that a reason speaks of.
    pub(crate) fn of(reason: &Reason) -> Option<Self> {
        match reason {
            Reason::Store(error) => Some(Self::of_error(error)),
            Reason::RenewalLate => Some(Trouble::Passing),
            _ => None,
        }
    }

    fn of_error(error: &StoreError) -> Self {
        if error.is_temporary() { Trouble::Passing } else { Trouble::Lasting }
    }
}

impl LogContext {
    /// Whether a reason tells of trouble that the log does not have yet.
    fn is_news(&self, reason: &Reason) -> bool {
        Trouble::of(reason) > self.trouble
    }
}

/// News of an election, or of a single try, which is worth less.
macro_rules! news {
    ($context:expr, $($rest:tt)+) => {
        match $context.is_single {
            true => tracing::debug!(target: "tenure", $($rest)+),
            false => tracing::info!(target: "tenure", $($rest)+),
        }
    };
}

/// Writes an event to the log, if it is of interest there.
pub(crate) fn log(state: &ElectionState, event: &Event, context: LogContext) {
    let resource = state.resource.name();
    let id = state.id.as_str();
    match &event.kind {
        EventKind::Acquired { token, .. } => {
            let token = token.get();
            let reason = if state.status.read().enabled { "granted" } else { "disabled" };
            news!(context, resource, id, role = "leader", token, reason, "leader: acquired");
        }
        EventKind::Lost { token, reason } if reason.is_involuntary() => {
            let (token, detail) = (token.get(), loss(state, reason, context));
            tracing::error!(target: "tenure", resource, id, role = "standby", token,
                reason = reason.code(), %detail, "leader: lost");
        }
        EventKind::Lost { token, reason } => {
            let (token, code) = (token.get(), reason.code());
            let is_down = matches!(state.status.read().connection, Connection::Down(_));
            match is_down || context.trouble.is_some() {
                true => news!(context, resource, id, role = "standby", token, reason = code,
                    detail = %reason, "leader: stopped; without a store the lease ends by itself"),
                false => news!(context, resource, id, role = "standby", token, reason = code,
                    detail = %reason, "leader: released"),
            }
        }
        EventKind::StateChanged { from, to, reason } => {
            log_role(state, (*from, *to), reason, context);
        }
        EventKind::Overrun { token } => {
            let (token, role) = (token.get(), state.status.read().role.as_str());
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
                detail = %one_line(why), "hand-over refused");
        }
        // The line about the renewal that failed has it.
        EventKind::Warning(text) if state.status.read().role == Role::Suspect => {
            tracing::debug!(target: "tenure", resource, id, detail = %one_line(text),
                "renewal failed");
        }
        EventKind::Warning(text) => {
            tracing::warn!(target: "tenure", resource, id, detail = %one_line(text),
                "needs attention");
        }
        _ => {}
    }
}

/// Why a term was lost, with what kept its renewals from coming through.
fn loss(state: &ElectionState, reason: &Reason, context: LogContext) -> String {
    let status = state.status.read();
    match (&status.warning, context.trouble, reason) {
        (Some(why), Some(_), Reason::LeaseEnded | Reason::RenewalLate) => {
            format!("{reason}: {}", one_line(why))
        }
        _ => reason.to_string(),
    }
}

/// The beginning and the end of trouble; other changes of role are told by what they mean.
fn log_role(state: &ElectionState, (from, to): (Role, Role), reason: &Reason, context: LogContext) {
    let (resource, id, role) = (state.resource.name(), state.id.as_str(), to.as_str());
    let (code, detail) = (reason.code(), reason);
    match (from, to) {
        (_, Role::Suspect) if context.is_news(reason) => {
            let status = state.status.read();
            let detail = one_line(status.warning.as_deref().unwrap_or(code));
            tracing::warn!(target: "tenure", resource, id, role, reason = code, %detail,
                "leader: renewal fails");
        }
        (_, Role::Unknown) => log_trouble(state, reason, context),
        (Role::Suspect, Role::Leader) => {
            tracing::info!(target: "tenure", resource, id, role, reason = code,
                "leader: renewed again");
        }
        // Where somebody waits for another reason, or leads now, that is the line.
        (Role::Unknown, Role::Standby) if context.trouble.is_some() && !is_wait(reason) => {
            tracing::info!(target: "tenure", resource, id, role, reason = code, %detail,
                "the store answers");
        }
        _ => {
            tracing::debug!(target: "tenure", resource, id, role, reason = code, %detail,
                "role changed");
        }
    }
}

/// Trouble that keeps this instance from contending, unless the log has it.
fn log_trouble(state: &ElectionState, reason: &Reason, context: LogContext) {
    let (resource, id) = (state.resource.name(), state.id.as_str());
    let (code, detail) = (reason.code(), reason);
    // Whoever made a single try is told.
    match context.is_news(reason) && !context.is_single {
        true => tracing::warn!(target: "tenure", resource, id, role = "unknown", reason = code,
            %detail, "cannot contend"),
        false => tracing::debug!(target: "tenure", resource, id, role = "unknown", reason = code,
            %detail, "cannot contend"),
    }
}

/// Whether [`log_wait`] has a line for it.
fn is_wait(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Quarantine { .. } | Reason::Paused | Reason::LockDelay(_) | Reason::Conflict(_)
    )
}

/// Why nobody leads here, told once for as long as the reason stays the same: an election that
/// waits is silent otherwise, and somebody on call must not have to guess.
pub(crate) fn log_wait(state: &ElectionState, reason: &Reason, context: LogContext) {
    let (resource, id) = (state.resource.name(), state.id.as_str());
    let (code, detail) = (reason.code(), reason);
    match reason {
        Reason::Store(_) => log_trouble(state, reason, context),
        // Whoever made the try is told.
        _ if context.is_single => {
            tracing::debug!(target: "tenure", resource, id, reason = code, %detail, "not granted");
        }
        Reason::Conflict(_) => {
            tracing::warn!(target: "tenure", resource, id, reason = code, %detail,
                "cannot contend");
        }
        _ if is_wait(reason) => {
            tracing::info!(target: "tenure", resource, id, reason = code, %detail, "waits");
        }
        _ => {}
    }
}

/// Text that stays on its line, with nothing else changed about it.
fn one_line(text: &str) -> impl fmt::Display + '_ {
    escaped(text, usize::MAX)
}
