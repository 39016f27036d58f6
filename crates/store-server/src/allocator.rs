//! The allocator of the program around the store.
//!
//! Allocators keep freed memory for later. After much was freed, the store tells the allocator to
//! return it to the system. Only the program knows which allocator it has chosen.

/// The allocator of the program, as far as the store needs it.
pub trait Allocator: Send + Sync {
    /// Its name, as INFO tells.
    fn name(&self) -> &str;

    /// Gives what is free back to the system. Called on the store's own threads, now and then
    /// after much was freed there, and by MEMORY PURGE.
    fn give_back(&self);

    /// Whether the program does nothing but serve the store, so that whatever its process takes
    /// beyond what is in use is worth giving back. Not so unless it says so.
    fn serves_store_alone(&self) -> bool {
        false
    }
}

/// The allocator that programs have unless they choose another: that of the C library.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemAllocator;

impl Allocator for SystemAllocator {
    fn name(&self) -> &str {
        "libc"
    }

    fn give_back(&self) {
        trim();
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library has no other way to say it")]
fn trim() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: it may be called at any time, from any thread, whether or not anything was
    // allocated by the C library. Whether it gave anything back does not matter.
    unsafe { malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
