//! What must have happened before a grant counts.

use std::fmt;
use std::time::Duration;

use redis::Value;
use tenure_core::StoreError;
use tokio::time::Instant;

/// More replicas than anybody waits for.
const REPLICAS_MAX: u32 = 64;

/// What must have happened before a grant or a renewal counts. docs/guarantees.md says what each
/// mode guarantees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The primary has it. If a failover may have lost a lease, nobody leads until it would be
    /// over.
    #[default]
    Available,
    /// This many replicas have it, too, so that an old primary that was cut off grants nothing. A
    /// server without a record counts as flushed, however long it has run: who asks for this mode
    /// does not want that risk.
    Strict {
        /// How many replicas; from the configuration, never from what the server says about itself.
        replicas: u32,
    },
}

impl Mode {
    /// The mode that an address asks for by `?mode=` and `?replicas=`.
    pub(super) fn from_options(mode: Option<&str>, replicas: Option<&str>) -> Result<Self, String> {
        let count = |text: &str| {
            let count = text.parse().ok().filter(|count| (1..=REPLICAS_MAX).contains(count));
            count.ok_or_else(|| format!("?replicas= is not a number from 1 to {REPLICAS_MAX}"))
        };
        match (mode, replicas.map(count).transpose()?) {
            (None | Some("available"), None) => Ok(Mode::Available),
            (Some("strict"), Some(replicas)) => Ok(Mode::Strict { replicas }),
            (Some("strict"), None) => Err("mode=strict needs the number of replicas that must \
                                           confirm: add &replicas=N, N = how many replicas the \
                                           primary has"
                .into()),
            (None, Some(count)) => Err(format!(
                "replicas={count} needs mode=strict: write ?mode=strict&replicas={count} if the \
                 primary has so many replicas"
            )),
            (Some("available"), Some(count)) => Err(format!(
                "mode=available waits for no replica: write ?mode=strict&replicas={count}, or \
                 leave replicas={count} out"
            )),
            (Some("quorum"), _) => Err("mode=quorum needs several independent nodes: write \
                                        redis+quorum://host1,host2,host3"
                .into()),
            (Some(_), _) => Err("?mode= is available or strict".into()),
        }
    }

    /// Whether replicas have a say.
    pub(super) fn awaits_replicas(self) -> bool {
        self != Mode::Available
    }

    /// The command after a pipeline that asks how far it got, for a batch that must be answered
    /// by `deadline`. Half of the time is left: for the answer's way back, and for calls that came
    /// right behind it and wait until it is there.
    pub(super) fn question(self, now: Instant, deadline: Instant) -> Option<redis::Cmd> {
        let Mode::Strict { replicas } = self else { return None };
        let patience = deadline.saturating_duration_since(now) / 2;
        let mut wait = redis::cmd("WAIT");
        // Zero would mean for ever.
        let patience = patience.max(Duration::from_millis(1));
        wait.arg(replicas).arg(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        Some(wait)
    }

    /// Whether that many replicas have it. The error says that it is not known to hold.
    pub(super) fn verdict(self, answer: Option<&Value>) -> Result<(), StoreError> {
        let Mode::Strict { replicas } = self else { return Ok(()) };
        match answer {
            Some(Value::Int(count)) if *count >= i64::from(replicas) => Ok(()),
            Some(Value::Int(count)) => Err(StoreError::not_now(format!(
                "{count} of {replicas} replicas confirmed it in time; attach the missing ones \
                 (INFO replication on the primary lists those that are there)"
            ))),
            Some(Value::ServerError(error)) => Err(super::error::from_reply(error)),
            _ => Err(StoreError::unexpected("no number in answer to WAIT")),
        }
    }
}

/// As it stands after `?` in an address; nothing for the default.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Available => Ok(()),
            Mode::Strict { replicas } => write!(f, "mode=strict&replicas={replicas}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_whole_or_refused() {
        assert_eq!(Mode::from_options(None, None), Ok(Mode::Available));
        assert_eq!(Mode::from_options(Some("available"), None), Ok(Mode::Available));
        let strict = Mode::from_options(Some("strict"), Some("2")).unwrap();
        assert_eq!(strict.to_string(), "mode=strict&replicas=2");
        let cases = [
            (Some("strict"), None, "add &replicas=N, N = how many replicas the primary has"),
            (None, Some("2"), "write ?mode=strict&replicas=2"),
            (Some("available"), Some("3"), "write ?mode=strict&replicas=3"),
            (Some("strict"), Some("0"), "number from 1 to"),
            (Some("strict"), Some("many"), "number from 1 to"),
            (Some("careful"), None, "available or strict"),
            (Some("quorum"), None, "redis+quorum://"),
        ];
        for (mode, replicas, expected) in cases {
            let error = Mode::from_options(mode, replicas).unwrap_err();
            assert!(error.contains(expected), "{mode:?} {replicas:?}: {error}");
        }
    }

    #[test]
    fn fewer_replicas_than_asked_for_is_no_confirmation() {
        let strict = Mode::Strict { replicas: 2 };
        assert_eq!(strict.verdict(Some(&Value::Int(2))), Ok(()));
        assert_eq!(strict.verdict(Some(&Value::Int(3))), Ok(()));
        let unconfirmed = strict.verdict(Some(&Value::Int(1))).unwrap_err();
        assert_eq!(unconfirmed.kind(), tenure_core::StoreErrorKind::NotNow);
        assert!(strict.verdict(None).is_err());
        assert_eq!(Mode::Available.verdict(None), Ok(()));
    }
}
