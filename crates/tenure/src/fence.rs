//! Fencing: the resource itself refuses writes of earlier leaders.
//!
//! A lease tells a leader when to stop; only the resource can make sure. A leader that was paused
//! between its last check and its write does not know that time has passed. So it sends its token
//! with every write, and the resource keeps the highest token it has seen and refuses lower ones.
//! Nothing less gives mutual exclusion.
//!
//! - A resource in this process: [`Fence`], or [`SharedFence`] between threads.
//! - A value in Redis: [`FencedValue`], over any connection of the `redis` crate or our own.
//! - A row in an SQL database: a column for the token, and a condition in every write:
//!
//! ```sql
//! ALTER TABLE report ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
//!
//! UPDATE report SET body = :body, fence = :token
//!  WHERE id = :id AND fence <= :token;
//! -- 0 rows: a newer leader has written. Stop working; do not retry.
//!
//! -- Several tables under one leader share one row, locked first in the same transaction:
//! BEGIN;
//! UPDATE leadership SET fence = :token WHERE name = 'nightly-report' AND fence <= :token;
//! -- 0 rows: ROLLBACK. Otherwise the row stays locked until COMMIT.
//! INSERT INTO …; UPDATE …;
//! COMMIT;
//! ```

#[cfg(feature = "redis")]
mod value;

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_core::Token;

#[cfg(feature = "redis")]
pub use self::value::{FencedError, FencedValue, FencedWrite};

/// Keeps the highest token that was admitted, and refuses lower ones.
///
/// ```
/// # use tenure::fence::Fence;
/// # use tenure::Token;
/// let (old, new) = (Token::new(17).unwrap(), Token::new(18).unwrap());
/// let mut fence = Fence::new();
/// fence.admit(old)?;
/// fence.admit(new)?;
/// fence.admit(new)?; // the same leader may write again
/// assert!(fence.admit(old).is_err()); // an earlier leader may not
///
/// let stored = fence.to_string();
/// let restored: Fence = stored.parse().unwrap();
/// assert_eq!(restored, fence);
/// # Ok::<(), tenure::fence::StaleToken>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Fence {
    highest: Option<Token>,
}

impl Fence {
    /// A fence that nobody has passed yet.
    pub const fn new() -> Self {
        Fence { highest: None }
    }

    /// A fence that has admitted this token before, for example before a restart.
    pub const fn restore(highest: Token) -> Self {
        Fence { highest: Some(highest) }
    }

    /// Admits a leader with this token; from then on, lower tokens are refused. Fails for an
    /// earlier leader.
    pub fn admit(&mut self, token: Token) -> Result<(), StaleToken> {
        match self.highest {
            Some(highest) if token < highest => Err(StaleToken { given: token, highest }),
            _ => {
                self.highest = Some(token);
                Ok(())
            }
        }
    }

    /// The highest token that was admitted, if any. Store it with the resource.
    pub const fn highest(&self) -> Option<Token> {
        self.highest
    }
}

/// The number to store; parsed again by [`FromStr`].
impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.highest.map_or(0, Token::get).fmt(f)
    }
}

impl FromStr for Fence {
    type Err = FenceParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim().parse().map_err(FenceFault::NotANumber)? {
            0 => Ok(Fence::new()),
            number => match Token::new(number) {
                Some(highest) => Ok(Fence::restore(highest)),
                None => Err(FenceFault::TooLarge { number }.into()),
            },
        }
    }
}

/// Why a stored fence cannot be read. Do not replace it with a new one: that would admit earlier
/// leaders again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct FenceParseError(#[from] FenceFault);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum FenceFault {
    /// The text is not a whole number.
    #[error("the stored fence is not a whole number: {0}")]
    NotANumber(ParseIntError),
    /// The number is larger than any token.
    #[error("the stored fence {number} exceeds every token")]
    TooLarge {
        /// What was stored.
        number: u64,
    },
}

/// A newer leader has written: stop working, do not retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {given} is refused: a leader with token {highest} has already written")]
pub struct StaleToken {
    /// The token that was refused.
    pub given: Token,
    /// The highest one seen.
    pub highest: Token,
}

/// A resource behind a fence, shared by several threads. No other write can come between the check
/// and the write.
///
/// ```
/// # use tenure::fence::SharedFence;
/// # use tenure::Token;
/// let ledger = SharedFence::new(Vec::new());
/// let token = Token::new(17).unwrap();
/// ledger.write(token, |lines| lines.push("paid"))?;
/// # Ok::<(), tenure::fence::StaleToken>(())
/// ```
#[derive(Debug, Default)]
pub struct SharedFence<T> {
    inner: Mutex<(Fence, T)>,
}

impl<T> SharedFence<T> {
    /// Puts the resource behind a fence that nobody has passed yet.
    pub const fn new(resource: T) -> Self {
        SharedFence { inner: Mutex::new((Fence::new(), resource)) }
    }

    /// Puts the resource behind a stored fence.
    pub const fn restore(fence: Fence, resource: T) -> Self {
        SharedFence { inner: Mutex::new((fence, resource)) }
    }

    /// Calls `write` if the token is admitted; nobody else writes meanwhile. Fails without calling
    /// `write` for an earlier leader.
    pub fn write<R>(&self, token: Token, write: impl FnOnce(&mut T) -> R) -> Result<R, StaleToken> {
        let mut inner = self.lock();
        inner.0.admit(token)?;
        Ok(write(&mut inner.1))
    }

    /// Reads the resource. No token is needed.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.lock().1)
    }

    /// The current fence, to be stored with the resource.
    pub fn fence(&self) -> Fence {
        self.lock().0.clone()
    }

    fn lock(&self) -> MutexGuard<'_, (Fence, T)> {
        // A write that panicked has passed the fence all the same.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).expect("a small number")
    }

    #[test]
    fn only_leaders_of_the_past_are_turned_away() {
        let mut fence = Fence::restore(token(5));
        assert_eq!(fence.admit(token(5)), Ok(()));
        assert_eq!(fence.admit(token(9)), Ok(()));
        let stale = StaleToken { given: token(8), highest: token(9) };
        assert_eq!(fence.admit(token(8)), Err(stale));
        assert_eq!(fence.highest(), Some(token(9)), "a refusal changes nothing");
    }

    #[test]
    fn a_stored_fence_comes_back_or_says_why_not() {
        assert_eq!(" 17\n".parse::<Fence>(), Ok(Fence::restore(token(17))));
        assert_eq!(Fence::new().to_string().parse::<Fence>(), Ok(Fence::new()));
        assert!(matches!("".parse::<Fence>(), Err(FenceParseError(FenceFault::NotANumber(_)))));
        assert!(matches!("-1".parse::<Fence>(), Err(FenceParseError(FenceFault::NotANumber(_)))));
        let beyond = (Token::MAX.get() + 1).to_string();
        assert!(matches!(
            beyond.parse::<Fence>(),
            Err(FenceParseError(FenceFault::TooLarge { .. }))
        ));
    }

    #[test]
    fn threads_see_their_writes_in_the_order_of_their_tokens() {
        let log = SharedFence::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 1..=8 {
                let log = &log;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let _ = log.write(token(number), |log| log.push(number));
                    }
                });
            }
        });
        assert!(log.read(|log| log.is_sorted()), "an older leader wrote after a newer one");
        assert_eq!(log.fence().highest(), Some(token(8)));
    }

    #[test]
    fn the_fence_lies_in_the_slot_of_its_value() {
        assert_eq!(FencedValue::new("report").unwrap().fence_key(), "{report}:fence");
        assert_eq!(FencedValue::new("{a}:report").unwrap().fence_key(), "{a}:report:fence");
        assert!(FencedValue::new("a}b").is_err());
        assert!(FencedValue::new("").is_err());
    }
}
