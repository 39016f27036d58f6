//! Functions of Lua's own library with a guard in front.

use std::ffi::{c_int, c_void};
use std::ptr;

use mlua::ffi;

use super::entry::{context, pay, raise_killed, raise_with_place, set_hook};
use super::frozen::{is_frozen, look_through, push_shown_metatable, raise_readonly};
use super::stack::Stack;
use crate::context::Context;

/// Bytes of memory in use for which one step of `next` pays a unit: few enough that emptied tables
/// tick in time, and many enough that those who iterate beside large data hardly notice.
const NEXT_BYTES: u64 = 4096;

/// What the guard does before or around the original.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Guarded {
    /// Refuses a frozen table as first argument.
    Write,
    /// Reads the real table in place of a frozen one.
    Read,
    /// Pays for the length of its first argument.
    Parse,
    /// Iterates over frozen tables too.
    Pairs,
    /// Shows frozen copies of metatables: that of the globals, and that of strings.
    Metatable,
    /// As `Read`, and pays for the empty places that may lie before the next entry.
    Next,
    /// Ends a killed script, and hands the text of error tables to the script.
    ProtectedCall,
    /// As `ProtectedCall`, with a handler.
    ProtectedCallHandled,
    /// Ends a killed script.
    Resume,
    /// Makes functions that resume a coroutine as `Resume` does.
    Wrap,
}

impl Guarded {
    /// Puts a guarded version of the C function on top of the stack in its place. For
    /// some a companion lies above the function: the string metatable to show
    /// ([`Guarded::Metatable`]), the `next` to hand out ([`Guarded::Pairs`]), and
    /// `coroutine.resume` above `coroutine.create` ([`Guarded::Wrap`]).
    pub(crate) fn wrap(self, stack: &mut Stack<'_>) {
        let function = match self {
            Guarded::Write => write as ffi::lua_CFunction,
            Guarded::Read => read,
            Guarded::Pairs => pairs,
            Guarded::Metatable => metatable,
            Guarded::Next => next,
            Guarded::Parse => parse,
            Guarded::ProtectedCall => protected_call,
            Guarded::ProtectedCallHandled => protected_call_handled,
            Guarded::Resume => resume,
            Guarded::Wrap => wrap,
        };
        let has_companion = matches!(self, Guarded::Metatable | Guarded::Pairs | Guarded::Wrap);
        let upvalues = if has_companion { 3 } else { 2 };
        let state = stack.state();
        // SAFETY: L2. The original has to be a C function for `call_original`.
        unsafe {
            assert!(ffi::lua_iscfunction(state, 1 - upvalues) != 0, "guards wrap C functions");
            let context = ptr::from_ref::<Context>(stack.context()) as *mut c_void;
            ffi::lua_pushlightuserdata(state, context);
            ffi::lua_insert(state, -upvalues);
            ffi::lua_pushcclosure(state, function, upvalues);
        }
    }
}

/// Replaces the two functions on top, `loadstring` and `table.concat`, by a `load` made of them. It
/// gathers the pieces before the parser sees any, because the collector must stand still while
/// the parser works, and the reader is the script's.
pub(crate) fn wrap_load(stack: &mut Stack<'_>) {
    let state = stack.state();
    // SAFETY: L2.
    unsafe {
        let context = ptr::from_ref::<Context>(stack.context()) as *mut c_void;
        ffi::lua_pushlightuserdata(state, context);
        ffi::lua_insert(state, -3);
        ffi::lua_pushcclosure(state, load, 3);
    }
}

unsafe extern "C-unwind" fn load(state: *mut ffi::lua_State) -> c_int {
    /// What asking for a piece costs.
    const PIECE: u64 = 16;
    // SAFETY: L1.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TFUNCTION);
        let name = ffi::luaL_optlstring(state, 2, c"=(load)".as_ptr(), ptr::null_mut());
        ffi::lua_pushstring(state, name);
        ffi::lua_replace(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_createtable(state, 0, 0);
        for position in 1.. {
            pay(state, PIECE);
            ffi::lua_pushvalue(state, 1);
            let status = call_protected(state, 0, 1);
            let is_string = ffi::lua_isstring(state, -1) != 0;
            if status == ffi::LUA_OK && !is_string && ffi::lua_type(state, -1) != ffi::LUA_TNIL {
                ffi::lua_pushstring(state, c"reader function must return a string".as_ptr());
            } else if status == ffi::LUA_OK {
                if is_string && ffi::lua_objlen(state, -1) > 0 {
                    ffi::lua_rawseti(state, 3, position);
                    continue;
                }
                break;
            }
            ffi::lua_pushnil(state);
            ffi::lua_insert(state, -2);
            return 2;
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
        ffi::lua_pushvalue(state, 3);
        ffi::lua_call(state, 1, 1);
        ffi::lua_pushvalue(state, 2);
        let top = ffi::lua_gettop(state) - 3;
        ffi::lua_call(state, 2, ffi::LUA_MULTRET);
        ffi::lua_gettop(state) - top
    }
}

/// Calls the original in this very frame, so that its messages name the script's line.
///
/// # Safety
/// L1. The second upvalue is a C function that uses no upvalues of its own.
unsafe fn call_original(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        match ffi::lua_tocfunction(state, ffi::lua_upvalueindex(2)) {
            Some(original) => original(state),
            None => 0,
        }
    }
}

unsafe extern "C-unwind" fn write(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        if is_frozen(state, 1) {
            raise_readonly(state);
        }
        call_original(state)
    }
}

unsafe extern "C-unwind" fn read(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1. The real table stays within the original, whose results are its keys and values.
    unsafe {
        if is_frozen(state, 1) {
            look_through(state, 1);
        }
        call_original(state)
    }
}

unsafe extern "C-unwind" fn next(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        // How many entries a table had is not to be seen: no more than memory holds.
        pay(state, 1 + context(state).memory() as u64 / NEXT_BYTES);
        read(state)
    }
}

unsafe extern "C-unwind" fn parse(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TSTRING {
            pay(state, ffi::lua_objlen(state, 1) as u64 / 4);
        }
        call_original(state)
    }
}

unsafe extern "C-unwind" fn pairs(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1. `pairs` of 5.1 has `next` as upvalue, which a call in this frame would miss:
    // the third upvalue is the guarded `next`, which serves all tables.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}

unsafe extern "C-unwind" fn metatable(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        if is_frozen(state, 1) {
            push_shown_metatable(state, 1);
            return 1;
        }
        if ffi::lua_type(state, 1) == ffi::LUA_TSTRING {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
            return 1;
        }
        call_original(state)
    }
}

unsafe extern "C-unwind" fn protected_call(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        ffi::luaL_checkany(state, 1);
        let status = call_protected(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET);
        if status != ffi::LUA_OK {
            show_text_of_error(state);
        }
        finish(state, status == ffi::LUA_OK)
    }
}

/// The handler runs after unwinding, not on top of the failed call as in plain Lua: there it would
/// run with hooks off when the error is a hook's, and an endless loop in it could not be killed.
/// Without the `debug` library a script cannot tell.
unsafe extern "C-unwind" fn protected_call_handled(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_insert(state, 1);
        let status = call_protected(state, 0, ffi::LUA_MULTRET);
        if status == ffi::LUA_ERRRUN {
            ffi::lua_pushvalue(state, 1);
            ffi::lua_insert(state, -2);
            let handled = call_protected(state, 1, 1);
            if handled != ffi::LUA_OK {
                ffi::lua_pop(state, 1);
                ffi::lua_pushstring(state, c"error in error handling".as_ptr());
            }
        }
        ffi::lua_remove(state, 1);
        finish(state, status == ffi::LUA_OK)
    }
}

/// `lua_pcall` without a handler, for scripts. Does not return when the script is killed.
///
/// # Safety
/// L1.
unsafe fn call_protected(state: *mut ffi::lua_State, arguments: c_int, results: c_int) -> c_int {
    // SAFETY: L1. An error may come from a `resume` that had told of its coroutine already.
    unsafe {
        let memory = context(state).allocator();
        let running = memory.running();
        let status = ffi::lua_pcall(state, arguments, results, 0);
        memory.set_running(running);
        end_if_killed(state);
        status
    }
}

/// Returns everything on the stack behind a boolean.
///
/// # Safety
/// L1.
unsafe fn finish(state: *mut ffi::lua_State, succeeded: bool) -> c_int {
    // SAFETY: L1. A call may leave the stack full; room for one more is asked for.
    unsafe {
        ffi::luaL_checkstack(state, 1, c"too many results".as_ptr());
        ffi::lua_pushboolean(state, c_int::from(succeeded));
        ffi::lua_insert(state, 1);
        ffi::lua_gettop(state)
    }
}

/// Redis hands errors that are tables with an `err` to `pcall` as that text.
///
/// # Safety
/// L1; the error lies on top.
unsafe fn show_text_of_error(state: *mut ffi::lua_State) {
    // SAFETY: L1.
    unsafe {
        if ffi::lua_type(state, -1) != ffi::LUA_TTABLE {
            return;
        }
        ffi::lua_pushstring(state, c"err".as_ptr());
        ffi::lua_rawget(state, -2);
        if ffi::lua_isstring(state, -1) != 0 {
            ffi::lua_replace(state, -2);
        } else {
            ffi::lua_pop(state, 1);
        }
    }
}

/// # Safety
/// L1.
unsafe fn end_if_killed(state: *mut ffi::lua_State) {
    // SAFETY: L1.
    unsafe {
        let context = context(state);
        // What was caught here is not raised any more.
        context.takes_kept_place();
        if context.is_killed() {
            raise_killed(state, context);
        }
    }
}

/// Each coroutine has a hook of its own. A kill that a coroutine died of must end its resumer
/// too, and no other coroutine may start once there was one: otherwise every level of nesting
/// would run on until its own hook fires.
unsafe extern "C-unwind" fn resume(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1.
    unsafe {
        end_if_killed(state);
        // Each coroutine counts its own instructions, and many that each run for a short while
        // would never tick.
        pay(state, context(state).limits().tick_work / 4);
        let (memory, coroutine) = (context(state).allocator(), ffi::lua_tothread(state, 1));
        if !coroutine.is_null() && context(state).has_long_strings() {
            set_hook(coroutine, context(state));
        }
        let resumer = memory.set_running(coroutine);
        let count = call_original(state);
        memory.set_running(resumer);
        end_if_killed(state);
        count
    }
}

unsafe extern "C-unwind" fn wrap(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1. The original is `coroutine.create`, which leaves the coroutine on top; the
    // companion is `coroutine.resume`, the original of the new closure.
    unsafe {
        end_if_killed(state);
        call_original(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, -2);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
        ffi::lua_insert(state, -2);
        ffi::lua_pushcclosure(state, resume_wrapped, 3);
        1
    }
}

unsafe extern "C-unwind" fn resume_wrapped(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1. `coroutine.resume` leaves a boolean and the results, or false and an error.
    unsafe {
        ffi::luaL_checkstack(state, 1, c"too many arguments".as_ptr());
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(3));
        ffi::lua_insert(state, 1);
        let count = resume(state);
        if ffi::lua_toboolean(state, -count) != 0 {
            return count - 1;
        }
        if ffi::lua_isstring(state, -1) != 0 {
            raise_with_place(state);
        }
        ffi::lua_error(state)
    }
}
