//! The functions of `table` that call scripts or raise in the middle of their work, as Lua 5.1 has
//! them, with ticks.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use mlua::ffi;

use super::entry::pay;
use super::frozen::{is_frozen, raise_readonly};
use super::stack::Stack;
use crate::context::Context;

const FUNCTIONS: &[(&CStr, ffi::lua_CFunction)] = &[
    (c"foreach", foreach),
    (c"foreachi", foreachi),
    (c"insert", insert),
    (c"maxn", maxn),
    (c"remove", remove),
    (c"sort", sort),
];
/// What it costs to move a value, or to compare two.
const MOVE: u64 = 4;

/// Sets the functions in the table at `index`.
pub(crate) fn set_table_functions(stack: &mut Stack<'_>, index: c_int) {
    for (name, function) in FUNCTIONS {
        let context = ptr::from_ref::<Context>(stack.context()) as *mut c_void;
        // SAFETY: L2. The functions expect the context as their first upvalue.
        unsafe {
            ffi::lua_pushlightuserdata(stack.state(), context);
            ffi::lua_pushcclosure(stack.state(), *function, 1);
        }
        stack.set_field(index, name);
    }
}

/// The length of the table that is the first argument.
///
/// # Safety
/// L1.
unsafe fn length(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::lua_objlen(state, 1) as c_int
    }
}

/// `table[to] = table[from]`
///
/// # Safety
/// L1.
unsafe fn move_item(state: *mut ffi::lua_State, from: c_int, to: c_int) {
    // SAFETY: L1; a table is the first argument.
    unsafe {
        pay(state, MOVE);
        ffi::lua_rawgeti(state, 1, from.into());
        ffi::lua_rawseti(state, 1, to.into());
    }
}

unsafe extern "C-unwind" fn insert(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        if is_frozen(state, 1) {
            raise_readonly(state);
        }
        let mut end = length(state).wrapping_add(1);
        let mut position = end;
        match ffi::lua_gettop(state) {
            2 => {}
            3 => {
                position = ffi::luaL_checkinteger(state, 2) as c_int;
                end = end.max(position);
                for to in (position.saturating_add(1)..=end).rev() {
                    move_item(state, to - 1, to);
                }
            }
            _ => {
                return ffi::luaL_error(state, c"wrong number of arguments to 'insert'".as_ptr());
            }
        }
        ffi::lua_rawseti(state, 1, position.into());
        0
    }
}

unsafe extern "C-unwind" fn remove(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        let end = length(state);
        let position = match ffi::lua_type(state, 2) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => end,
            _ => ffi::luaL_checkinteger(state, 2) as c_int,
        };
        if !(1..=end).contains(&position) {
            return 0;
        }
        ffi::lua_rawgeti(state, 1, position.into());
        for to in position..end {
            move_item(state, to + 1, to);
        }
        ffi::lua_pushnil(state);
        ffi::lua_rawseti(state, 1, end.into());
        1
    }
}

unsafe extern "C-unwind" fn maxn(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        let mut largest = 0.0_f64;
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, 1) != 0 {
            pay(state, MOVE);
            ffi::lua_pop(state, 1);
            if ffi::lua_type(state, -1) == ffi::LUA_TNUMBER {
                let key = ffi::lua_tonumber(state, -1);
                if key > largest {
                    largest = key;
                }
            }
        }
        ffi::lua_pushnumber(state, largest);
        1
    }
}

unsafe extern "C-unwind" fn foreach(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::luaL_checktype(state, 2, ffi::LUA_TFUNCTION);
        ffi::lua_pushnil(state);
        while ffi::lua_next(state, 1) != 0 {
            pay(state, MOVE);
            ffi::lua_pushvalue(state, 2);
            ffi::lua_pushvalue(state, -3);
            ffi::lua_pushvalue(state, -3);
            ffi::lua_call(state, 2, 1);
            if ffi::lua_type(state, -1) != ffi::LUA_TNIL {
                return 1;
            }
            ffi::lua_pop(state, 2);
        }
        0
    }
}

unsafe extern "C-unwind" fn foreachi(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        let length = length(state);
        ffi::luaL_checktype(state, 2, ffi::LUA_TFUNCTION);
        for position in 1..=length {
            pay(state, MOVE);
            ffi::lua_pushvalue(state, 2);
            ffi::lua_pushinteger(state, position as ffi::lua_Integer);
            ffi::lua_rawgeti(state, 1, position.into());
            ffi::lua_call(state, 2, 1);
            if ffi::lua_type(state, -1) != ffi::LUA_TNIL {
                return 1;
            }
            ffi::lua_pop(state, 1);
        }
        0
    }
}

unsafe extern "C-unwind" fn sort(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        let length = length(state);
        ffi::luaL_checkstack_(state, 40, c"".as_ptr());
        if ffi::lua_type(state, 2) > ffi::LUA_TNIL {
            ffi::luaL_checktype(state, 2, ffi::LUA_TFUNCTION);
        }
        ffi::lua_settop(state, 2);
        sort_range(state, 1, length);
        0
    }
}

/// Sorts the items from `low` to `high` by the quicksort of Lua 5.1, step by step the same: the
/// order of equal items is visible to scripts, and so is what an inconsistent comparison leads to.
///
/// # Safety
/// L1.
unsafe fn sort_range(state: *mut ffi::lua_State, mut low: c_int, mut high: c_int) {
    // SAFETY: L1. Every path leaves the stack as high as it was.
    unsafe {
        while low < high {
            if !sort_three(state, low, high) {
                return;
            }
            let pivot_at = partition(state, low, high);
            // The smaller part is sorted within, so that few frames suffice.
            if pivot_at - low < high - pivot_at {
                sort_range(state, low, pivot_at - 1);
                low = pivot_at + 1;
            } else {
                sort_range(state, pivot_at + 1, high);
                high = pivot_at - 1;
            }
        }
    }
}

/// Sorts the first, the middle and the last item. Whether there are more.
///
/// # Safety
/// L1.
unsafe fn sort_three(state: *mut ffi::lua_State, low: c_int, high: c_int) -> bool {
    // SAFETY: L1.
    unsafe {
        get(state, low);
        get(state, high);
        if is_less(state, -1, -2) {
            set_two(state, low, high);
        } else {
            ffi::lua_pop(state, 2);
        }
        if high - low == 1 {
            return false;
        }
        let middle = middle(low, high);
        get(state, middle);
        get(state, low);
        if is_less(state, -2, -1) {
            set_two(state, middle, low);
        } else {
            ffi::lua_pop(state, 1);
            get(state, high);
            if is_less(state, -1, -2) {
                set_two(state, middle, high);
            } else {
                ffi::lua_pop(state, 2);
            }
        }
        high - low != 2
    }
}

fn middle(low: c_int, high: c_int) -> c_int {
    low + (high - low) / 2
}

/// Brings what is less than the middle item before it and the rest behind. Answers its place.
///
/// # Safety
/// L1.
unsafe fn partition(state: *mut ffi::lua_State, low: c_int, high: c_int) -> c_int {
    // SAFETY: L1.
    unsafe {
        let middle = middle(low, high);
        get(state, middle);
        ffi::lua_pushvalue(state, -1);
        get(state, high - 1);
        set_two(state, middle, high - 1);
        let (mut from_low, mut from_high) = (low, high - 1);
        loop {
            from_low += 1;
            get(state, from_low);
            while is_less(state, -1, -2) {
                if from_low > high {
                    refuse_order(state);
                }
                ffi::lua_pop(state, 1);
                from_low += 1;
                get(state, from_low);
            }
            from_high -= 1;
            get(state, from_high);
            while is_less(state, -3, -1) {
                if from_high < low {
                    refuse_order(state);
                }
                ffi::lua_pop(state, 1);
                from_high -= 1;
                get(state, from_high);
            }
            if from_high < from_low {
                ffi::lua_pop(state, 3);
                break;
            }
            set_two(state, from_low, from_high);
        }
        get(state, high - 1);
        get(state, from_low);
        set_two(state, high - 1, from_low);
        from_low
    }
}

/// # Safety
/// L1.
unsafe fn get(state: *mut ffi::lua_State, position: c_int) {
    // SAFETY: L1; the table is the first argument.
    unsafe {
        ffi::lua_rawgeti(state, 1, position.into());
    }
}

/// `table[first] = top`, `table[second] = the one below`; both are popped.
///
/// # Safety
/// L1.
unsafe fn set_two(state: *mut ffi::lua_State, first: c_int, second: c_int) {
    // SAFETY: L1.
    unsafe {
        ffi::lua_rawseti(state, 1, first.into());
        ffi::lua_rawseti(state, 1, second.into());
    }
}

/// Whether the value at `one` goes before that at `other`; both count from the top.
///
/// # Safety
/// L1.
unsafe fn is_less(state: *mut ffi::lua_State, one: c_int, other: c_int) -> bool {
    // SAFETY: L1. The second argument is nil, or a function that compares.
    unsafe {
        pay(state, MOVE);
        if ffi::lua_type(state, 2) == ffi::LUA_TNIL {
            pay_for_strings(state, one, other);
            return ffi::lua_lessthan(state, one, other) != 0;
        }
        ffi::lua_pushvalue(state, 2);
        ffi::lua_pushvalue(state, one - 1);
        ffi::lua_pushvalue(state, other - 2);
        ffi::lua_call(state, 2, 1);
        let is_less = ffi::lua_toboolean(state, -1) != 0;
        ffi::lua_pop(state, 1);
        is_less
    }
}

/// Long strings with the same beginning take long to compare.
///
/// # Safety
/// L1.
unsafe fn pay_for_strings(state: *mut ffi::lua_State, one: c_int, other: c_int) {
    // SAFETY: L1.
    unsafe {
        if ffi::lua_type(state, one) == ffi::LUA_TSTRING
            && ffi::lua_type(state, other) == ffi::LUA_TSTRING
        {
            let length = ffi::lua_objlen(state, one).min(ffi::lua_objlen(state, other));
            pay(state, length as u64 / 8);
        }
    }
}

/// # Safety
/// L1.
unsafe fn refuse_order(state: *mut ffi::lua_State) {
    // SAFETY: L1.
    unsafe {
        ffi::luaL_error(state, c"invalid order function for sorting".as_ptr());
    }
}
