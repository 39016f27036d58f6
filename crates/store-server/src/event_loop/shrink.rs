//! A process that shrinks: after much was freed, the allocator is told to give it back.
//!
//! What is in use is looked at now and then. When it is far below what it was at its highest since
//! the allocator was last told, or when so much was freed in between, the allocator is told again.

use super::EventLoop;

/// Between two looks while there is anything to do.
const LOOK_MS: u64 = 100;
/// Between two times that the allocator is told: it looks at everything that it has.
const TELL_MS: u64 = 500;
/// Less than this is not worth it, nor is less than an eighth of what is in use.
const FREED_MIN: usize = 8 * 1024 * 1024;

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
}

impl Shrinking {
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
        if self.shrinking.look(now_ms, in_use) {
            self.ties.allocator.give_back();
        }
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
}
