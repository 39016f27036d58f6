//! Tables that scripts can read and not change.
//!
//! Lua 5.1 has no read-only tables. A frozen table is an empty one whose metatable looks up in the
//! real one and refuses assignment; since it stays empty, every assignment meets the metatable.
//! What bypasses metatables (`rawset`, `table.insert`, `setmetatable`) is guarded, and what would
//! see emptiness (`next`, `pairs`, `rawget`) looks through.

use std::ffi::{c_int, c_void};
use std::ptr;

use mlua::ffi;

use super::entry::raise_text;
use super::stack::Stack;

/// Its address as a key marks the metatables of frozen tables: scripts have no light userdata
/// other than null to look with.
static MARK: u8 = 0;
/// Its address as a key: what `getmetatable` shows for a frozen table.
static SHOWN_MARK: u8 = 1;

/// How tables are frozen.
pub(crate) struct Frozen;

impl Frozen {
    /// Replaces the table on top by a frozen one that shows it.
    pub(crate) fn freeze(stack: &mut Stack<'_>) {
        let state = stack.state();
        // SAFETY: L2; the mark is neither nil nor NaN, so `rawset` does not raise.
        unsafe {
            ffi::lua_createtable(state, 0, 0);
            ffi::lua_createtable(state, 0, 3);
            ffi::lua_pushvalue(state, -3);
            ffi::lua_setfield(state, -2, c"__index".as_ptr());
            ffi::lua_pushcclosure(state, refuse_assignment, 0);
            ffi::lua_setfield(state, -2, c"__newindex".as_ptr());
            ffi::lua_pushlightuserdata(state, mark());
            ffi::lua_pushboolean(state, 1);
            ffi::lua_rawset(state, -3);
            ffi::lua_setmetatable(state, -2);
            ffi::lua_replace(state, -2);
        }
    }

    /// Makes the frozen table at `index` show the table on top, which is popped.
    pub(crate) fn show_instead(stack: &mut Stack<'_>, index: c_int) {
        let state = stack.state();
        // SAFETY: L2, and the metatable of a frozen table has no metatable of its own.
        unsafe {
            assert!(is_frozen(state, index), "only frozen tables show another");
            ffi::lua_getmetatable(state, index);
            ffi::lua_insert(state, -2);
            ffi::lua_setfield(state, -2, c"__index".as_ptr());
            ffi::lua_pop(state, 1);
        }
    }

    /// Lets scripts see the table on top, which is popped, as the metatable of the frozen one
    /// below it. Others have none to show.
    pub(crate) fn show_metatable(stack: &mut Stack<'_>) {
        let state = stack.state();
        // SAFETY: L2; see `freeze`.
        unsafe {
            assert!(is_frozen(state, -2), "only frozen tables hide their metatable");
            ffi::lua_getmetatable(state, -2);
            ffi::lua_insert(state, -2);
            ffi::lua_pushlightuserdata(state, shown_mark());
            ffi::lua_insert(state, -2);
            ffi::lua_rawset(state, -3);
            ffi::lua_pop(state, 1);
        }
    }

    /// Makes missing keys of the (not frozen) table on top an error.
    pub(crate) fn refuse_missing(stack: &mut Stack<'_>) {
        let state = stack.state();
        // SAFETY: L2.
        unsafe {
            Self::push_refusal(stack);
            ffi::lua_setmetatable(state, -2);
        }
    }

    /// Pushes the metatable that makes missing keys an error.
    pub(crate) fn push_refusal(stack: &mut Stack<'_>) {
        let state = stack.state();
        // SAFETY: L2.
        unsafe {
            ffi::lua_createtable(state, 0, 1);
            ffi::lua_pushcclosure(state, refuse_missing, 0);
            ffi::lua_setfield(state, -2, c"__index".as_ptr());
        }
    }
}

fn mark() -> *mut c_void {
    ptr::from_ref(&MARK) as *mut c_void
}

fn shown_mark() -> *mut c_void {
    ptr::from_ref(&SHOWN_MARK) as *mut c_void
}

/// Pushes what scripts see as the metatable of the frozen table at `index`, or nil.
///
/// # Safety
/// A frozen table lies there, and three slots are free. Does not raise.
pub(super) unsafe fn push_shown_metatable(state: *mut ffi::lua_State, index: c_int) {
    // SAFETY: as the caller promises.
    unsafe {
        ffi::lua_getmetatable(state, index);
        ffi::lua_pushlightuserdata(state, shown_mark());
        ffi::lua_rawget(state, -2);
        ffi::lua_remove(state, -2);
    }
}

/// Whether a frozen table lies at `index`.
///
/// # Safety
/// Three slots are free. Does not raise.
pub(super) unsafe fn is_frozen(state: *mut ffi::lua_State, index: c_int) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        if ffi::lua_type(state, index) != ffi::LUA_TTABLE
            || ffi::lua_getmetatable(state, index) == 0
        {
            return false;
        }
        ffi::lua_pushlightuserdata(state, mark());
        ffi::lua_rawget(state, -2);
        let frozen = ffi::lua_toboolean(state, -1) != 0;
        ffi::lua_pop(state, 2);
        frozen
    }
}

/// Replaces the frozen table at `index` by the real one, for a reader that does not hand it out.
///
/// # Safety
/// A frozen table lies there, and three slots are free. Does not raise.
pub(super) unsafe fn look_through(state: *mut ffi::lua_State, index: c_int) {
    // SAFETY: as the caller promises; metatables of frozen tables have no metatable.
    unsafe {
        ffi::lua_getmetatable(state, index);
        ffi::lua_getfield(state, -1, c"__index".as_ptr());
        ffi::lua_replace(state, index);
        ffi::lua_pop(state, 1);
    }
}

/// Redis' text, and the one place it is spelt.
pub(super) unsafe fn raise_readonly(state: *mut ffi::lua_State) -> ! {
    // SAFETY: L1.
    unsafe { raise_text(state, c"Attempt to modify a readonly table") }
}

unsafe extern "C-unwind" fn refuse_assignment(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe { ffi::luaL_error(state, c"Attempt to modify a readonly table".as_ptr()) }
}

unsafe extern "C-unwind" fn refuse_missing(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1. `lua_tostring` of a string or number gives text that the stack keeps alive.
    unsafe {
        if ffi::lua_isstring(state, 2) == 0 {
            return ffi::luaL_error(
                state,
                c"Script attempted to access nonexistent global variable".as_ptr(),
            );
        }
        ffi::luaL_error(
            state,
            c"Script attempted to access nonexistent global variable '%s'".as_ptr(),
            ffi::lua_tostring(state, 2),
        )
    }
}
