//! Whether this process is a copy of the one that started the client.
//!
//! After `fork()` the child has the parent's memory but not its driver thread: it would believe in
//! a lease that is the parent's. Asking the kernel for the process id on every check would cost
//! more than the check itself, so the C library counts the forks for us.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many forks lie between the first process and this one. A global by nature: so is a process.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The generation of a process; equal in two places when no fork lies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Generation {
    /// The generation now. The first call has forks counted from then on.
    pub(crate) fn current() -> Self {
        static COUNTING: Once = Once::new();
        COUNTING.call_once(count_forks);
        Generation(FORKS.load(Ordering::Relaxed))
    }

    /// Whether no fork happened since. One atomic load.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }
}

extern "C" fn count_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[allow(unsafe_code)]
fn count_forks() {
    unsafe extern "C" {
        fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> i32;
    }
    // SAFETY: the signature is that of POSIX; the handler only adds to an atomic, which is
    // permitted in a forked child of a program with many threads.
    let failed = unsafe { pthread_atfork(None, None, Some(count_in_child)) };
    // It fails only when memory is out; forks then go unnoticed until the lease ends.
    if failed != 0 {
        tracing::warn!(target: "tenure", code = failed, "forks cannot be counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_stays_current_until_a_fork() {
        let generation = Generation::current();
        assert!(generation.is_current());
        assert!(!Generation(generation.0 + 1).is_current());
    }
}
