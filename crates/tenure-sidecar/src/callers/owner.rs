//! Whose something is, and whether that one is still alive.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::Response;
use subtle::ConstantTimeEq;

use crate::clock;
use crate::routes::refusal;

/// The longest word for an owner; the shortest is so long that two do not meet by chance.
const WORD_LEN: std::ops::RangeInclusive<usize> = 16..=128;
/// How long an owner may be silent: shorter would not survive a busy machine, longer is for nobody.
const SILENCE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);
/// How long it may be, unless told otherwise.
pub(super) const SILENCE_DEFAULT: Duration = Duration::from_secs(10);

/// A word that only the caller knows who holds something.
#[derive(Clone, Debug)]
pub(super) struct Owner(String);

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Owner {
    /// The word that a caller sent.
    pub(super) fn read(word: &str) -> Result<Self, Response> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if WORD_LEN.contains(&word.len()) && word.chars().all(is_plain) {
            return Ok(Owner(word.to_owned()));
        }
        let (least, most) = (WORD_LEN.start(), WORD_LEN.end());
        let error = format!(
            "owner has to be {least} to {most} letters, digits, dots or hyphens: draw it at random"
        );
        Err(refusal(StatusCode::BAD_REQUEST, "bad-owner", error))
    }

    /// The word that a caller sent, or one that nobody else has.
    pub(super) fn read_or_draw(word: Option<&str>) -> Result<Self, Response> {
        match word {
            Some(word) => Self::read(word),
            None => Ok(Owner(std::iter::repeat_with(fastrand::alphanumeric).take(24).collect())),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Until when an owner counts as alive.
#[derive(Debug)]
pub(super) struct Lifeline {
    within: Duration,
    until: Mutex<Instant>,
}

impl Lifeline {
    pub(super) fn new(within: Duration) -> Self {
        Lifeline { within, until: Mutex::new(clock::now() + within) }
    }

    /// How long an owner may be silent, as a caller asked for it.
    pub(super) fn read(within_ms: Option<u64>) -> Result<Option<Duration>, Response> {
        let Some(within) = within_ms.map(Duration::from_millis) else { return Ok(None) };
        if SILENCE.contains(&within) {
            return Ok(Some(within));
        }
        let (least, most) = (SILENCE.start().as_millis(), SILENCE.end().as_millis());
        let error = format!("within_ms has to be {least} to {most}");
        Err(refusal(StatusCode::BAD_REQUEST, "bad-setting", error))
    }

    pub(super) fn within(&self) -> Duration {
        self.within
    }

    /// The owner has just said something.
    pub(super) fn extend(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = clock::now() + self.within;
    }

    /// Waits until the owner has been silent for too long.
    pub(super) async fn ends(&self) {
        loop {
            let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
            if clock::now() >= until {
                return;
            }
            tokio::time::sleep_until(until.into()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_a_word_that_is_hard_to_guess_and_easy_to_send() {
        for good in ["0123456789abcdef", "a.b-c_d.A.B-C_D.1", &"x".repeat(128)] {
            assert!(Owner::read(good).is_ok(), "{good}");
        }
        for bad in ["", "short", "0123456789abcde\n", "0123456789abcdé", &"x".repeat(129)] {
            assert!(Owner::read(bad).is_err(), "{bad}");
        }
        let drawn = [(); 2].map(|()| Owner::read_or_draw(None).unwrap());
        assert_ne!(drawn[0], drawn[1]);
        assert!(Owner::read(drawn[0].as_str()).is_ok());
    }
}
