//! Asks the processor to fetch memory that will be needed soon.
//!
//! Keys of pipelined requests are known before their turn comes; fetching their buckets and
//! entries meanwhile hides most of the wait for memory.
#![allow(unsafe_code)]

/// Begins to fetch the cache line at `address`. A hint: never faults, changes nothing.
#[inline]
pub(super) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing as far as the program can tell, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same, into the second level of the cache alone: many lines at once do not keep what is
/// needed right now waiting for a place in the first.
#[inline]
pub(super) fn prefetch_far<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T2, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T2>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
