//! What the doctor finds, and what to do about it.

use serde_json::{Value, json};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Elections do not work, or not as they should.
    Problem,
    /// They work; they may fail on a bad day.
    Risk,
    /// Good to know.
    Note,
}

impl Severity {
    pub(super) fn word(self) -> &'static str {
        match self {
            Severity::Problem => "problem",
            Severity::Risk => "risk",
            Severity::Note => "note",
        }
    }
}

/// One finding: a stable word, what was seen, and the next step.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) code: &'static str,
    pub(super) severity: Severity,
    /// The election, or the store.
    pub(super) about: String,
    pub(super) what: String,
    pub(super) next: String,
}

impl Finding {
    pub(super) fn problem(code: &'static str, what: String, next: &str) -> Self {
        Self::new(code, Severity::Problem, what, next)
    }

    pub(super) fn risk(code: &'static str, what: String, next: &str) -> Self {
        Self::new(code, Severity::Risk, what, next)
    }

    pub(super) fn note(code: &'static str, what: String, next: &str) -> Self {
        Self::new(code, Severity::Note, what, next)
    }

    fn new(code: &'static str, severity: Severity, what: String, next: &str) -> Self {
        Finding { code, severity, about: String::new(), what, next: next.to_owned() }
    }

    pub(super) fn about(mut self, about: &str) -> Self {
        about.clone_into(&mut self.about);
        self
    }

    /// `code`, `severity` (`problem`, `risk` or `note`), `about`, `what`, `do`.
    pub(super) fn as_json(&self) -> Value {
        json!({
            "code": self.code,
            "severity": self.severity.word(),
            "about": self.about,
            "what": self.what,
            "do": self.next,
        })
    }

    pub(super) fn as_text(&self) -> String {
        let Finding { code, about, what, next, .. } = self;
        format!("{:<8} {about}: {what} [{code}]\n         do: {next}\n", self.severity.word())
    }
}
