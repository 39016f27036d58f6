//! A process that shrinks: after much was freed, the allocator is told to give it back.
//!
//! What is in use is looked at now and then. When it is far below what it was at its highest since
//! the allocator was last told, or when so much was freed in between, the allocator is told again.
//! Not all that is freed was ever counted, a script's data or what loading needed for instance, so
//! the allocator is also told when the process takes far more than is in use. That may not help:
//! the pages may hold a little of what is in use each. Then it is tried less and less often.
//!
//! To hand hundreds of megabytes to the system takes tens of milliseconds. Whoever tells the
//! allocator does it for all threads, so the freeing thread goes first, and little is left.

use super::EventLoop;
use crate::process::private_bytes;

/// Between two looks while there is anything to do.
const LOOK_MS: u64 = 100;
/// Between two times that the allocator is told: it looks at everything that it has.
const TELL_MS: u64 = 500;
/// Less than this is not worth it, nor is less than an eighth of what is in use.
const FREED_MIN: usize = 8 * 1024 * 1024;
/// What the process may take beyond five quarters of what is in use.
const SURPLUS_MAX: usize = 16 * 1024 * 1024;
/// The longest time between two attempts against a surplus that stays.
const SURPLUS_PAUSE_MS_MAX: u64 = 64_000;

/// What is known of memory in use.
#[derive(Default)]
pub(super) struct Shrinking {
    /// The most that was in use since the allocator was last told.
    highest: usize,
    /// Bytes freed at once by flushes and closed clients since then.
    freed: usize,
    next_look_ms: u64,
    told_at_ms: u64,
    /// Whether anything happened since the last look.
    is_due: bool,
    /// Whether the thread was told, and it is the loop's turn.
    is_own_due: bool,
    surplus: Surplus,
}

/// What is known of memory that the process takes beyond what is in use.
#[derive(Default)]
struct Surplus {
    next_attempt_ms: u64,
    /// Doubled by each attempt after which there is still too much; 0 when there is not.
    pause_ms: u64,
}

impl Surplus {
    /// Whether to try to get rid of it.
    fn look(&mut self, now_ms: u64, in_use: usize, taken: usize) -> bool {
        if taken <= in_use + in_use / 4 + SURPLUS_MAX {
            *self = Self::default();
            return false;
        }
        if now_ms < self.next_attempt_ms {
            return false;
        }
        self.pause_ms = (2 * self.pause_ms).clamp(TELL_MS, SURPLUS_PAUSE_MS_MAX);
        self.next_attempt_ms = now_ms + self.pause_ms;
        true
    }
}

impl Shrinking {
    /// At the start, with a look to come: loading may have left much behind.
    pub(super) fn at_start() -> Self {
        Self { is_due: true, ..Self::default() }
    }

    /// So much was freed in one go.
    pub(super) fn note_freed(&mut self, bytes: usize) {
        self.freed = self.freed.saturating_add(bytes);
    }

    /// When to look next even if nothing happens.
    pub(super) fn next_at_ms(&self) -> Option<u64> {
        self.is_due.then_some(self.next_look_ms)
    }

    /// The wall clock was set: the next look may come too early.
    pub(super) fn clock_stepped(&mut self) {
        (self.next_look_ms, self.told_at_ms) = (0, 0);
        self.surplus = Surplus::default();
    }

    /// Whether the allocator is to be told now that `in_use` bytes are in use.
    fn look(&mut self, now_ms: u64, in_use: usize) -> bool {
        self.highest = self.highest.max(in_use);
        let freed = self.freed.max(self.highest - in_use);
        if freed < FREED_MIN.max(in_use / 8) {
            return false;
        }
        // A clock that was set back must not put it off.
        let is_soon = now_ms.saturating_sub(self.told_at_ms) < TELL_MS;
        if is_soon && now_ms >= self.told_at_ms {
            self.is_due = true;
            return false;
        }
        (self.highest, self.freed, self.told_at_ms) = (in_use, 0, now_ms);
        true
    }
}

impl EventLoop {
    /// Has the allocator give memory back if much of it was freed.
    #[inline]
    pub(super) fn shrink(&mut self, now_ms: u64) {
        match now_ms < self.shrinking.next_look_ms {
            true => self.shrinking.is_due = true,
            false => self.look_at_memory(now_ms),
        }
    }

    fn look_at_memory(&mut self, now_ms: u64) {
        self.shrinking.next_look_ms = now_ms + LOOK_MS;
        // What the thread frees is noticed only by looking.
        self.shrinking.is_due = self.freeing.is_busy();
        self.count_shared();
        let flushed = self.engine.take_flushed_bytes();
        self.shrinking.note_freed(flushed);
        let in_use = self.engine.memory_in_use();
        if std::mem::take(&mut self.shrinking.is_own_due) {
            self.shared.allocator.give_back();
        }
        if self.shrinking.look(now_ms, in_use) || self.has_surplus(now_ms, in_use) {
            self.give_back();
        }
    }

    /// The thread does its part, and the loop the rest at the next look.
    fn give_back(&mut self) {
        if self.freeing.give_back() {
            (self.shrinking.is_own_due, self.shrinking.is_due) = (true, true);
        } else {
            self.shared.allocator.give_back();
        }
    }

    fn has_surplus(&mut self, now_ms: u64, in_use: usize) -> bool {
        // Of a program that does other things, too, the size says nothing about the store.
        if !self.shared.allocator.serves_store_alone() {
            return false;
        }
        private_bytes().is_some_and(|taken| self.shrinking.surplus.look(now_ms, in_use, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_is_told_after_much_was_freed_and_not_too_often() {
        let mut shrinking = Shrinking::default();
        assert!(!shrinking.look(1000, 100 << 20), "nothing was freed yet");
        assert!(!shrinking.look(1100, 95 << 20), "too little");
        assert!(shrinking.look(1200, 50 << 20));
        assert!(!shrinking.look(1300, 50 << 20), "it was told of that");
        shrinking.note_freed(60 << 20);
        assert!(!shrinking.look(1400, 50 << 20), "too soon");
        assert_eq!(shrinking.next_at_ms(), Some(0), "and not forgotten");
        assert!(shrinking.look(1700, 50 << 20));
        assert!(!shrinking.look(9000, 50 << 20));
    }

    #[test]
    fn a_surplus_is_tried_to_get_rid_of_less_and_less_often() {
        const IN_USE: usize = 100 << 20;
        let mut surplus = Surplus::default();
        assert!(!surplus.look(1000, IN_USE, 130 << 20), "that is usual");
        let attempts = |surplus: &mut Surplus, from: u64, until: u64| {
            let looks = (from..until).step_by(100);
            looks.filter(|&now_ms| surplus.look(now_ms, IN_USE, 200 << 20)).count()
        };
        assert_eq!(attempts(&mut surplus, 1000, 1100), 1);
        let more = attempts(&mut surplus, 1100, 601_000);
        assert!((10..20).contains(&more), "{more} in ten minutes");
        assert!(!surplus.look(601_000, IN_USE, 130 << 20), "it is gone");
        assert!(surplus.look(601_100, IN_USE, 200 << 20), "a new one does not wait");
    }
}
