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

/// Frees a buffer that another thread asked for. Some allocators leave its pages to that thread,
/// where giving hundreds of megabytes back takes tens of milliseconds: here they go first.
pub(crate) fn free_of_other_thread(mut buffer: Vec<u8>) {
    discard(&mut buffer);
}

/// Gives the pages of a buffer back to the system, whatever is in them.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the system's interface")]
fn discard(buffer: &mut Vec<u8>) {
    use rustix::mm::{Advice, madvise};

    let page = rustix::param::page_size();
    let start = buffer.as_mut_ptr();
    let before = start.align_offset(page).min(buffer.capacity());
    let len = (buffer.capacity() - before) / page * page;
    if len > 0 {
        // SAFETY: these are whole pages in the middle of a buffer that is owned here. They read as
        // zeros afterwards, or as before; both are bytes.
        let _ = unsafe { madvise(start.add(before).cast(), len, Advice::LinuxDontNeed) };
    }
}

#[cfg(not(target_os = "linux"))]
fn discard(_: &mut Vec<u8>) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_buffer_are_given_back_and_its_neighbours_are_left_alone() {
        for len in [0, 1, 5_000, 100_000, 3_000_000] {
            let mut whole = vec![7; len];
            let page = rustix::param::page_size();
            discard(&mut whole);
            let kept = whole.iter().filter(|byte| **byte == 7).count();
            assert!(kept <= len.min(2 * page), "{kept} of {len} bytes are still there");
        }
        let mut all: Vec<Vec<u8>> = (0..8).map(|_| vec![9; 9_000]).collect();
        discard(&mut all[3]);
        let others = all.iter().enumerate().filter(|(at, _)| *at != 3);
        assert!(others.into_iter().all(|(_, it)| it.iter().all(|byte| *byte == 9)));
    }
}
