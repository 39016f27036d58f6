//! The host of the running script, lent for as long as it runs.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::host::Host;

/// Holds the host while a script runs. Natives live as long as the interpreter and the host only
/// as long as one call of it, so its lifetime cannot be told to the compiler.
#[derive(Default)]
pub(crate) struct HostSlot(Cell<Option<NonNull<dyn Host>>>);

impl HostSlot {
    /// Runs `work` with `host` in the slot.
    pub(crate) fn lend<R>(&self, host: &mut dyn Host, work: impl FnOnce() -> R) -> R {
        /// Clears the slot even when `work` unwinds.
        struct Returned<'a>(&'a HostSlot);
        impl Drop for Returned<'_> {
            fn drop(&mut self) {
                self.0.0.set(None);
            }
        }
        let pointer: NonNull<dyn Host + '_> = NonNull::from(host);
        // SAFETY: only the lifetime changes. The pointer leaves the slot before `host`'s borrow
        // ends, since `Returned` clears it.
        let pointer: NonNull<dyn Host> = unsafe { std::mem::transmute(pointer) };
        self.0.set(Some(pointer));
        let _returned = Returned(self);
        work()
    }

    /// Runs `work` with the host, if one is lent. Within `work` the slot is empty, so that no
    /// second exclusive borrow can come to be.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut dyn Host) -> R) -> Option<R> {
        let mut pointer = self.0.take()?;
        // SAFETY: `lend` holds the exclusive borrow this came from and has not returned, or the
        // slot would be empty. Taking the pointer out makes this the only use of it.
        let result = work(unsafe { pointer.as_mut() });
        self.0.set(Some(pointer));
        Some(result)
    }
}
