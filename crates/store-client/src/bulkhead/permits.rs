//! Isolation by permits: a call has one or is refused, and nobody waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::error::{BulkheadError, CallError};

/// At most so many calls at a time; one more is refused at once. Clones share their permits.
#[derive(Clone, Debug)]
pub struct Permits {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: Arc<str>,
    calls_max: usize,
    running: AtomicUsize,
    granted: AtomicU64,
    refused: AtomicU64,
}

/// The counts of [`Permits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitCounts {
    /// Permits that are in use now.
    pub running: usize,
    /// Permits given since the start.
    pub granted: u64,
    /// Calls refused since the start.
    pub refused: u64,
}

impl Permits {
    /// At most `calls_max` calls of the dependency `name` at a time.
    ///
    /// # Errors
    /// When `calls_max` is 0.
    pub fn new(name: impl Into<Arc<str>>, calls_max: usize) -> Result<Self, BulkheadError> {
        let name = name.into();
        if calls_max == 0 {
            return Err(BulkheadError::NoPlace { name });
        }
        let (running, granted, refused) = Default::default();
        Ok(Self { shared: Arc::new(Shared { name, calls_max, running, granted, refused }) })
    }

    /// A permit, or a refusal. Dropping the permit releases it.
    ///
    /// # Errors
    /// [`CallError::Refused`] when all permits are in use.
    pub fn acquire(&self) -> Result<Permit, CallError> {
        let shared = &self.shared;
        let one_more = |running| (running < shared.calls_max).then_some(running + 1);
        match shared.running.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more) {
            Ok(_) => {
                shared.granted.fetch_add(1, Ordering::Relaxed);
                Ok(Permit { shared: Arc::clone(shared) })
            }
            Err(running) => {
                shared.refused.fetch_add(1, Ordering::Relaxed);
                Err(CallError::Refused { name: Arc::clone(&shared.name), running, waiting: 0 })
            }
        }
    }

    /// Makes the call if there is a permit. A panic reaches the caller, and the permit is released.
    ///
    /// # Errors
    /// [`CallError::Refused`] when all permits are in use.
    pub fn call<T>(&self, call: impl FnOnce() -> T) -> Result<T, CallError> {
        let _permit = self.acquire()?;
        Ok(call())
    }

    /// Awaits the call if there is a permit; otherwise it is never polled. The permit is released
    /// when the call ends, panics or is dropped.
    ///
    /// # Errors
    /// [`CallError::Refused`] when all permits are in use.
    pub async fn call_async<T>(&self, call: impl Future<Output = T>) -> Result<T, CallError> {
        let _permit = self.acquire()?;
        Ok(call.await)
    }

    /// The counts so far.
    pub fn counts(&self) -> PermitCounts {
        PermitCounts {
            running: self.shared.running.load(Ordering::Relaxed),
            granted: self.shared.granted.load(Ordering::Relaxed),
            refused: self.shared.refused.load(Ordering::Relaxed),
        }
    }
}

/// The right to make one call, until it is dropped.
#[derive(Debug)]
#[must_use = "the permit is given back when it is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.running.fetch_sub(1, Ordering::Release);
    }
}
