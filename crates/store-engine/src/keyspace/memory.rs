//! What an allocation costs.
//!
//! The store may live in a program with any allocator, so it cannot ask how much memory is in
//! use; it counts by the size classes that mimalloc, jemalloc and others share within a few
//! percent: steps of 16 bytes up to 128, then four classes per doubling, or whole spans of 64 KiB
//! where that is less, and beyond 16 MiB whole pages.

const STEP: usize = 16;
const STEPPED_MAX: usize = 128;
const SPAN: usize = 64 * 1024;
const PAGE: usize = 4096;
/// Beyond this, allocators ask the system for each.
const SPANS_MAX: usize = 16 * 1024 * 1024;

/// The bytes that an allocation of `size` bytes really takes.
/// ```
/// # use store_engine::size_class;
/// assert_eq!([size_class(1), size_class(33), size_class(130)], [16, 48, 160]);
/// ```
#[inline]
pub const fn size_class(size: usize) -> usize {
    if size <= STEPPED_MAX {
        return if size == 0 { 0 } else { (size + STEP - 1) & !(STEP - 1) };
    }
    // A quarter of the power of two below `size`.
    let quarter = 1usize << (usize::BITS - 1 - (size - 1).leading_zeros() - 2);
    let step = match size {
        ..=SPANS_MAX if quarter <= SPAN => quarter,
        ..=SPANS_MAX => SPAN,
        _ => PAGE,
    };
    (size + step - 1) & !(step - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_never_shrink_and_waste_at_most_a_fifth() {
        let mut last = 0;
        let large = (100_000..40_000_000).step_by(997);
        for size in (1..100_000).chain(large) {
            let class = size_class(size);
            assert!(class >= size && class >= last, "{size} → {class}");
            assert!(size < STEPPED_MAX || class * 4 <= size * 5, "{size} → {class}");
            assert_eq!(size_class(class), class);
            last = class;
        }
    }
}
