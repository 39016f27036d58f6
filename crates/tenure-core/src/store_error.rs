//! Why a store did not answer, whose fault that is, and what to do next.

use std::fmt;
use std::time::Duration;

use crate::timing::whole_millis;

/// The kind of a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No connection, or it broke. The request may have been carried out.
    Unreachable,
    /// No answer in time. The request may have been carried out.
    TimedOut,
    /// The store cannot serve writes for a while (loading, failing over, out of memory, busy).
    NotNow,
    /// The connected node is not, or no longer, the primary. Waiting may help: it may be promoted,
    /// or sentinels may learn of their primary.
    WrongNode,
    /// What the address leads to can never serve this: an operator has to change the address.
    WrongAddress,
    /// Credentials or permissions: an operator has to act.
    Denied,
    /// The store answered something that this protocol does not allow.
    Unexpected,
}

impl StoreErrorKind {
    /// What stands before the message.
    fn title(self) -> &'static str {
        match self {
            StoreErrorKind::Unreachable => "store unreachable: ",
            StoreErrorKind::TimedOut => "",
            StoreErrorKind::NotNow => "store cannot serve now: ",
            StoreErrorKind::WrongNode => "no primary there: ",
            StoreErrorKind::WrongAddress => "the store's address cannot work: ",
            StoreErrorKind::Denied => "store denies access: ",
            StoreErrorKind::Unexpected => "unexpected answer from the store: ",
        }
    }
}

/// Why a store did not answer, and what an operator can do about it.
// Boxed: most of what may hold an error never does.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreError(Box<Content>);

#[derive(Clone, PartialEq, Eq)]
struct Content {
    kind: StoreErrorKind,
    message: String,
    next_step: Option<String>,
}

impl StoreError {
    fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        StoreError(Box::new(Content { kind, message: message.into(), next_step: None }))
    }

    /// [`StoreErrorKind::Unreachable`].
    pub fn unreachable(message: impl Into<String>) -> Self {
        StoreError::new(StoreErrorKind::Unreachable, message)
    }

    /// [`StoreErrorKind::TimedOut`], after waiting this long.
    pub fn timed_out(waited: Duration) -> Self {
        let waited = whole_millis(waited);
        let message =
            format!("no answer from the store within {waited:?}: it is busy, stopped or cut off");
        StoreError::new(StoreErrorKind::TimedOut, message)
    }

    /// [`StoreErrorKind::NotNow`].
    pub fn not_now(message: impl Into<String>) -> Self {
        StoreError::new(StoreErrorKind::NotNow, message)
    }

    /// [`StoreErrorKind::WrongNode`].
    pub fn wrong_node(message: impl Into<String>) -> Self {
        StoreError::new(StoreErrorKind::WrongNode, message)
    }

    /// [`StoreErrorKind::WrongAddress`].
    pub fn wrong_address(message: impl Into<String>) -> Self {
        StoreError::new(StoreErrorKind::WrongAddress, message)
    }

    /// [`StoreErrorKind::Denied`].
    pub fn denied(message: impl Into<String>) -> Self {
        StoreError::new(StoreErrorKind::Denied, message)
    }

    /// [`StoreErrorKind::Unexpected`].
    pub fn unexpected(message: impl Into<String>) -> Self {
        StoreError::new(StoreErrorKind::Unexpected, message)
    }

    /// The same error with a next step: what an operator can do about it.
    #[must_use]
    pub fn with_next_step(mut self, step: impl Into<String>) -> Self {
        self.0.next_step = Some(step.into());
        self
    }

    /// The same error without a next step, for callers that show it elsewhere.
    #[must_use]
    pub fn without_next_step(mut self) -> Self {
        self.0.next_step = None;
        self
    }

    /// The same error with another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: StoreErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The same error with the address where it happened, unless the message names it.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        if !self.0.message.contains(place) {
            self.0.message.insert_str(0, &format!("{place}: "));
        }
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> StoreErrorKind {
        self.0.kind
    }

    /// What happened, without the kind and the next step.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What an operator can do about it, if that is known.
    pub fn next_step(&self) -> Option<&str> {
        self.0.next_step.as_deref()
    }

    /// What happened and the next step, without the kind.
    pub fn detail(&self) -> String {
        match &self.0.next_step {
            Some(step) => format!("{}; {step}", self.0.message),
            None => self.0.message.clone(),
        }
    }

    /// Whether the error may go away without anybody acting.
    pub fn is_temporary(&self) -> bool {
        !self.needs_person() && self.0.kind != StoreErrorKind::Unexpected
    }

    /// Whether the store can be reached but serves only after an operator acts: on the login, its
    /// rights or the address.
    pub fn needs_person(&self) -> bool {
        matches!(self.0.kind, StoreErrorKind::Denied | StoreErrorKind::WrongAddress)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("next_step", &self.0.next_step)
            .finish()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0.kind.title(), self.0.message)?;
        match &self.0.next_step {
            Some(step) => write!(f, "; {step}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for StoreError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_happened_where_and_what_to_do() {
        let error = StoreError::unreachable("refused").with_next_step("start the store");
        assert_eq!(error.to_string(), "store unreachable: refused; start the store");
        let placed = error.at("redis://h:1").at("redis://h:1");
        assert_eq!(placed.message(), "redis://h:1: refused", "once");
        assert_eq!(placed.detail(), "redis://h:1: refused; start the store");
        assert_eq!(placed.next_step(), Some("start the store"));
        let silent = StoreError::timed_out(Duration::from_secs(3));
        assert!(silent.to_string().starts_with("no answer from the store within 3s: "), "{silent}");
    }

    #[test]
    fn it_knows_whether_waiting_helps() {
        let denied = StoreError::denied("NOPERM");
        assert!(denied.needs_person() && !denied.is_temporary());
        let odd = StoreError::unexpected("a number");
        assert!(!odd.needs_person() && !odd.is_temporary());
        assert!(StoreError::wrong_node("a replica").is_temporary());
    }
}
