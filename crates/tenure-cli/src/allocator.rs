//! The allocator of this program.
//!
//! Keys are many small allocations; only the program may choose who makes them.

use store_server::Allocator;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc, as the store talks to it.
pub(crate) struct Mimalloc;

impl Allocator for Mimalloc {
    fn name(&self) -> &str {
        "mimalloc"
    }

    #[expect(unsafe_code, reason = "the allocator's own interface is that of C")]
    fn give_back(&self) {
        // SAFETY: it may be called at any time, from any thread.
        unsafe { libmimalloc_sys::mi_collect(true) }
    }

    fn serves_store_alone(&self) -> bool {
        true
    }
}
