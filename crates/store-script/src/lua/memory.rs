//! The memory of a state: counted, limited, and a reason to tick.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use mlua::ffi;

use super::chains::Chains;
use super::entry::hook;

/// Bytes that may be allocated between two ticks. An instruction that joins long strings copies as
/// much as thousands of others do, and only the allocator sees it.
const ALLOCATED_MAX: usize = 4 << 20;

/// Bytes that instructions may look at between two ticks, should each of them look at the longest
/// string.
const INSTRUCTION_BYTES_MAX: usize = 64 << 20;
/// Strings from this length on are noted.
const LONG_MIN: usize = 1024;
/// Bytes in use for which an allocation counts a byte more.
const FIND_BYTES: usize = 64;

/// Which strings of earlier runs a run can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// None: a script has its arguments and what it makes.
    Own,
    /// What libraries keep.
    Kept,
}

/// Stands between a state and the allocator that it came with.
pub(crate) struct Memory(Box<Inner>);

struct Inner {
    state: *mut ffi::lua_State,
    original: ffi::lua_Alloc,
    original_data: *mut c_void,
    used: Cell<usize>,
    limit: Cell<usize>,
    /// Bytes allocated since the last tick.
    allocated: Cell<usize>,
    /// The coroutine that runs. Null between runs.
    running: Cell<*mut ffi::lua_State>,
    /// The length of the longest string that the run has seen, or nearly.
    longest: Cell<usize>,
    /// That of all runs of functions: libraries keep strings from one to the next.
    longest_kept: Cell<usize>,
    chains: Chains,
}

impl Memory {
    /// Takes the place of the allocator of `state`.
    ///
    /// # Safety
    /// The state is valid and outlives the answer.
    pub(super) unsafe fn of(state: *mut ffi::lua_State) -> Self {
        let mut original_data = ptr::null_mut();
        // SAFETY: the state is valid. The box keeps its address until the drop below.
        unsafe {
            let original = ffi::lua_getallocf(state, &mut original_data);
            let kilobytes = ffi::lua_gc(state, ffi::LUA_GCCOUNT, 0) as usize;
            let bytes = ffi::lua_gc(state, ffi::LUA_GCCOUNTB, 0) as usize;
            let inner = Box::new(Inner {
                state,
                original,
                original_data,
                used: Cell::new(kilobytes * 1024 + bytes),
                limit: Cell::new(usize::MAX),
                allocated: Cell::new(0),
                running: Cell::new(ptr::null_mut()),
                longest: Cell::new(0),
                longest_kept: Cell::new(0),
                chains: Chains::default(),
            });
            let data = ptr::from_ref::<Inner>(&inner) as *mut c_void;
            ffi::lua_setallocf(state, allocate, data);
            Self(inner)
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.0.used.get()
    }

    /// Allocations that would use more fail. Answers the limit of before.
    pub(crate) fn set_limit(&self, limit: usize) -> usize {
        self.0.limit.replace(limit)
    }

    /// A run begins that can reach what earlier runs of functions kept, or one that cannot.
    pub(crate) fn begin_run(&self, reach: Reach) {
        let kept = self.0.longest_kept.get().min(self.used());
        self.0.longest.set(if reach == Reach::Kept { kept } else { 0 });
        self.forget_chains();
    }

    /// What a table was that is gone by now does not matter any more.
    pub(crate) fn forget_chains(&self) {
        self.0.chains.forget_longest();
    }

    /// Whether garbage should not lie around: see [`Chains`].
    pub(crate) fn met_chains(&self) -> bool {
        self.0.chains.was_met()
    }

    /// Looks at a few chains of large tables. Returns [`slowness`](Self::slowness).
    pub(crate) fn look_at_chains(&self) -> usize {
        self.0.chains.sample();
        self.slowness()
    }

    /// A run of functions is over.
    pub(crate) fn keep_longest(&self) {
        self.0.longest_kept.set(self.0.longest_kept.get().max(self.0.longest.get()));
    }

    /// The run has a string of this length.
    pub(crate) fn note_string(&self, length: usize) {
        self.0.note_string(length);
    }

    /// Instructions after which a tick is due: comparing two long strings, or reading one as a
    /// number, is a single instruction that looks at every byte.
    pub(crate) fn instructions_max(&self) -> usize {
        (INSTRUCTION_BYTES_MAX / self.0.longest.get().max(1)).max(1)
    }

    /// How many times longer an instruction, or a step of a native, may take because of a table
    /// whose keys were chosen to be slow.
    #[inline]
    pub(crate) fn slowness(&self) -> usize {
        self.0.chains.factor()
    }

    /// Whether some table is so large that making room in it may take long.
    pub(crate) fn has_large_tables(&self) -> bool {
        self.0.chains.has_any()
    }

    /// There was a tick.
    pub(crate) fn note_tick(&self) {
        self.0.allocated.set(0);
        self.0.chains.sample();
    }

    /// Which coroutine runs.
    pub(super) fn running(&self) -> *mut ffi::lua_State {
        self.0.running.get()
    }

    /// Tells which coroutine runs. Answers which one did. Whoever catches an error puts back what
    /// was before: a pointer to a coroutine that is gone would be followed.
    pub(super) fn set_running(&self, state: *mut ffi::lua_State) -> *mut ffi::lua_State {
        self.0.running.replace(state)
    }

    /// Whether a script runs.
    pub(super) fn is_running(&self) -> bool {
        !self.0.running.get().is_null()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the state outlives this, and what frees its memory is the allocator that it had.
        unsafe { ffi::lua_setallocf(self.0.state, self.0.original, self.0.original_data) }
    }
}

unsafe extern "C" fn allocate(
    data: *mut c_void,
    block: *mut c_void,
    old_size: usize,
    new_size: usize,
) -> *mut c_void {
    // SAFETY: `Memory::of` passed its box. The original does the work for blocks of its own.
    unsafe {
        let memory = &*data.cast::<Inner>();
        let old_size = if block.is_null() { 0 } else { old_size };
        let used = memory.used.get() - old_size + new_size;
        let limit = memory.limit.get();
        if new_size > old_size && used > limit {
            return ptr::null_mut();
        }
        // Where nothing may fail, natives look themselves.
        if block.is_null() && limit != usize::MAX && !memory.chains.admits(new_size) {
            return ptr::null_mut();
        }
        let new_block = (memory.original)(memory.original_data, block, old_size, new_size);
        if new_block.is_null() && new_size > 0 {
            return new_block;
        }
        memory.used.set(used);
        if block.is_null() {
            memory.chains.note_new(new_block.cast(), new_size);
        } else {
            memory.chains.note_gone(block.cast(), old_size);
        }
        if new_size > old_size {
            // Finding a place among as many others may take as long as there are.
            memory.note_allocated(new_size + used / FIND_BYTES);
            // Parts of tables have sizes that divide by eight. A string that has one, too, was
            // joined in a buffer that has not, or is noted by the native that made it.
            if new_size >= LONG_MIN && !new_size.is_multiple_of(8) {
                memory.note_string(new_size);
            }
        }
        new_block
    }
}

impl Inner {
    fn note_string(&self, length: usize) {
        let longest = self.longest.get();
        if length >= LONG_MIN && length > longest + longest / 4 {
            self.longest.set(length);
            self.fire_hook();
        }
    }

    /// Makes the hook fire at the next instruction, which sets it anew.
    fn fire_hook(&self) {
        if !self.running.get().is_null() {
            // SAFETY: the coroutine runs. Setting a hook is the one thing that Lua lets be done
            // at any moment.
            unsafe {
                ffi::lua_sethook(self.running.get(), Some(hook), ffi::LUA_MASKCOUNT, 1);
            }
        }
    }

    fn note_allocated(&self, bytes: usize) {
        let allocated = self.allocated.get() + bytes;
        self.allocated.set(allocated);
        if allocated > ALLOCATED_MAX {
            self.allocated.set(0);
            self.fire_hook();
        }
    }
}
