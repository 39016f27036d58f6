//! Tables whose keys were chosen so that they all stand in one chain.
//!
//! A table of Lua 5.1 finds a key by a hash that anybody can compute backwards: a hundred thousand
//! numbers can be such that each has the place of the others. Then a look for one passes them all,
//! and making room for one more, a single instruction, looks for every one of them: minutes in
//! which nothing ticks.
//!
//! Lua asks the allocator for the room first. So it is refused here when the keys of some table
//! that is there would stand in chains in it, and a look at a few chains at every tick finds
//! those that grew without new room. Only numbers and addresses are looked at: the hash of a string
//! is in the string, which may be gone.

use std::cell::{Cell, RefCell};

/// A place in a table, as Lua 5.1 lays it out: the value, its type, the key, its type, and the
/// next place in the chain.
const NODE: usize = 40;
const VALUE_TYPE_AT: usize = 8;
const KEY_AT: usize = 16;
const KEY_TYPE_AT: usize = 24;
const NEXT_AT: usize = 32;

const NIL: u32 = 0;
const NUMBER: u32 = 3;
/// Keys of these types are addresses: light userdata, tables, functions, userdata and threads.
const ADDRESSES: [u32; 5] = [2, 5, 6, 7, 8];

/// Tables with fewer places are left alone: they cannot take long.
const PLACES_LOG_MIN: u32 = 12;
/// Steps that making room may take: some tens of milliseconds.
const STEPS_MAX: u64 = 1 << 24;
/// Chains that a tick looks at.
const SAMPLES: usize = 8;
/// A chain up to this length is as usual.
const USUAL_LEN: usize = 64;
/// How far a chain is followed: what is longer is slow enough.
const LEN_MAX: usize = 16 * 1024;

/// A block of memory that may hold the places of a table.
#[derive(Clone, Copy, Debug)]
struct Places {
    start: *const u8,
    log: u32,
}

impl Places {
    fn count(self) -> usize {
        1 << self.log
    }
}

/// The large tables of a state.
#[derive(Debug, Default)]
pub(super) struct Chains {
    places: RefCell<Vec<Places>>,
    /// How often each place was asked for, in one count.
    counts: RefCell<Vec<u32>>,
    /// Which sample is next.
    next: Cell<usize>,
    longest: Cell<usize>,
    /// Whether there was a table with keys that were chosen.
    was_met: Cell<bool>,
}

/// The logarithm of how many places of a large table are in so many bytes, if that can be.
#[inline]
fn places_log(size: usize) -> Option<u32> {
    if size < NODE << PLACES_LOG_MIN || !size.is_multiple_of(NODE) {
        return None;
    }
    let count = size / NODE;
    count.is_power_of_two().then(|| count.trailing_zeros())
}

impl Chains {
    /// Whether a block of this size may be had: not when it is to be the new room of a table whose
    /// keys would stand in chains in it.
    #[inline]
    pub(super) fn admits(&self, size: usize) -> bool {
        places_log(size).is_none_or(|log| self.admits_places(log))
    }

    #[cold]
    fn admits_places(&self, log: u32) -> bool {
        let mut counts = self.counts.borrow_mut();
        let admits = self.places.borrow().iter().all(|places| {
            counts.clear();
            counts.resize(1 << log, 0);
            let mut steps = 0;
            for at in 0..places.count() {
                // SAFETY: the block is there until it is told to be gone, and holds that many.
                let (next, place) =
                    unsafe { (next_of(*places, at), place_of(places.start.add(at * NODE), log)) };
                if next == Next::Foreign {
                    return true;
                }
                if let Some(place) = place {
                    steps += u64::from(counts[place]);
                    counts[place] += 1;
                }
            }
            steps <= STEPS_MAX
        });
        if !admits {
            self.was_met.set(true);
        }
        admits
    }

    /// A block is there, which was not before.
    #[inline]
    pub(super) fn note_new(&self, start: *const u8, size: usize) {
        if let Some(log) = places_log(size) {
            self.places.borrow_mut().push(Places { start, log });
        }
    }

    /// A block is gone, or became another.
    #[inline]
    pub(super) fn note_gone(&self, start: *const u8, size: usize) {
        if places_log(size).is_some() {
            self.places.borrow_mut().retain(|places| places.start != start);
        }
    }

    /// Whether there is any large table.
    pub(super) fn has_any(&self) -> bool {
        !self.places.borrow().is_empty()
    }

    /// A run begins.
    pub(super) fn forget_longest(&self) {
        self.longest.set(0);
    }

    /// Whether there was a table with keys that were chosen, since this was last asked. It is
    /// better not left to lie around: others would be refused room, or slowed down, by it.
    pub(super) fn was_met(&self) -> bool {
        self.was_met.take()
    }

    /// How much longer a look for a key may take than it should.
    #[inline]
    pub(super) fn factor(&self) -> usize {
        1 + self.longest.get() / USUAL_LEN
    }

    /// Looks at a few chains.
    pub(super) fn sample(&self) {
        let places = self.places.borrow();
        if places.is_empty() {
            return;
        }
        for _ in 0..SAMPLES {
            let number = self.next.get().wrapping_add(1);
            self.next.set(number);
            let chosen = places[number % places.len()];
            // Steps that are odd and large come everywhere.
            let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - chosen.log);
            // SAFETY: as in `admits_places`.
            let len = unsafe { chain_len(chosen, at) };
            if len > self.longest.get() {
                self.longest.set(len);
                self.was_met.set(self.was_met.get() || len > 2 * USUAL_LEN);
            }
        }
    }
}

/// Where the key at `node` would stand among `1 << log` places. `None` when nothing is there, or a
/// key that is not looked at.
///
/// # Safety
/// A node's bytes can be read.
unsafe fn place_of(node: *const u8, log: u32) -> Option<usize> {
    // SAFETY: as the caller promises. Any bytes are numbers.
    let (value_type, key_type, key) = unsafe {
        let word = |at: usize| node.add(at).cast::<u32>().read_volatile();
        (word(VALUE_TYPE_AT), word(KEY_TYPE_AT), [word(KEY_AT), word(KEY_AT + 4)])
    };
    if value_type == NIL {
        return None;
    }
    let hash = match key_type {
        NUMBER => key[0].wrapping_add(key[1]),
        _ if ADDRESSES.contains(&key_type) => key[0],
        _ => return None,
    };
    Some(hash as usize % (((1 << log) - 1) | 1))
}

/// What follows a place in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    At(usize),
    /// It is not a place of a table: another block has the same size.
    Foreign,
}

/// What follows a place.
///
/// # Safety
/// The block can be read, and has that place.
unsafe fn next_of(places: Places, at: usize) -> Next {
    // SAFETY: as the caller promises.
    let next = unsafe { places.start.add(at * NODE + NEXT_AT).cast::<usize>().read_volatile() };
    let offset = next.wrapping_sub(places.start as usize);
    match next {
        0 => Next::Nothing,
        _ if offset.is_multiple_of(NODE) && offset / NODE < places.count() => {
            Next::At(offset / NODE)
        }
        _ => Next::Foreign,
    }
}

/// How many places follow in the chain, as far as that matters.
///
/// # Safety
/// The block can be read, and has that place.
unsafe fn chain_len(places: Places, mut at: usize) -> usize {
    for len in 0..LEN_MAX {
        // SAFETY: as the caller promises, and what follows is one of the places.
        match unsafe { next_of(places, at) } {
            Next::At(next) => at = next,
            Next::Nothing => return len,
            Next::Foreign => return 0,
        }
    }
    LEN_MAX
}
