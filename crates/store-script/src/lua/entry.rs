//! Where Lua calls Rust: natives, the error handler and the instruction hook.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use mlua::ffi;

use super::stack::Stack;
use crate::context::Context;

/// A function of ours that scripts can call: it reads its arguments from the stack, leaves its
/// results on top and says how many they are.
pub(crate) type Native = fn(&mut Stack<'_>, &Context) -> Result<c_int, Raise>;

/// An error for the script. The text or value lies on top of the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raise {
    /// The value as it is.
    Value,
    /// The text, behind the place in the script that called.
    Text,
    /// "bad argument #n to 'f' (text)".
    Argument(c_int),
    /// "bad argument #n to 'f' (number expected, got nil)". Nothing lies on the stack.
    Type(c_int, &'static CStr),
    /// "not enough memory". Nothing lies on the stack.
    Memory,
    /// The value is an error that a call within raised, and its place is noted.
    Again,
    /// The host has ended the script. Nothing lies on the stack.
    Killed,
}

/// Where in which source an error was raised.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceLine {
    /// The name of the chunk.
    pub(crate) source: Vec<u8>,
    /// The line, -1 where there is none.
    pub(crate) line: c_int,
}

/// Puts a C closure around `native` on the stack.
///
/// # Safety
/// The state is valid, has two free slots, and never outlives `context`.
pub(super) unsafe fn push_native(state: *mut ffi::lua_State, context: &Context, native: Native) {
    // SAFETY: as the caller promises. Function pointers fit a data pointer on all our targets.
    unsafe {
        ffi::lua_pushlightuserdata(state, ptr::from_ref(context) as *mut c_void);
        ffi::lua_pushlightuserdata(state, native as *mut c_void);
        ffi::lua_pushcclosure(state, enter, 2);
    }
}

/// Upvalues of a native before those that it brought itself.
const OWN_UPVALUES: c_int = 2;

/// Replaces `count` values on top by a C closure around `native` that keeps them.
///
/// # Safety
/// As [`push_native`], and the values are there.
pub(super) unsafe fn push_closure(
    state: *mut ffi::lua_State,
    context: &Context,
    native: Native,
    count: c_int,
) {
    // SAFETY: as the caller promises.
    unsafe {
        ffi::lua_pushlightuserdata(state, ptr::from_ref(context) as *mut c_void);
        ffi::lua_insert(state, -count - 1);
        ffi::lua_pushlightuserdata(state, native as *mut c_void);
        ffi::lua_insert(state, -count - 1);
        ffi::lua_pushcclosure(state, enter, OWN_UPVALUES + count);
    }
}

/// The index of the value that a closure keeps, counted from 1.
pub(super) fn closed_index(number: c_int) -> c_int {
    ffi::lua_upvalueindex(OWN_UPVALUES + number)
}

/// The context that a closure of ours carries as its first upvalue.
///
/// # Safety
/// Called from within such a closure.
pub(super) unsafe fn context<'a>(state: *mut ffi::lua_State) -> &'a Context {
    // SAFETY: every closure of ours has the context first, which outlives the state.
    unsafe { &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast::<Context>() }
}

unsafe extern "C-unwind" fn enter(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: `push_native` made the upvalues. L1: all that is owned lives in `run`.
    unsafe {
        let context = context(state);
        let native: Native =
            std::mem::transmute(ffi::lua_touserdata(state, ffi::lua_upvalueindex(2)));
        match run(state, context, native) {
            Ok(count) => count,
            Err(error) => raise(state, error),
        }
    }
}

/// Runs the native with the memory limit lifted (L2).
fn run(state: *mut ffi::lua_State, context: &Context, native: Native) -> Result<c_int, Raise> {
    // SAFETY: the state is the one that is calling, and its limit is lifted on the next line.
    let mut stack = unsafe { Stack::new(state, context) };
    let _lifted = context.lift_limit();
    // A panic must not unwind through Lua's frames. It would be a bug of ours, and the script
    // that found it gets an error.
    match catch_unwind(AssertUnwindSafe(|| native(&mut stack, context))) {
        Ok(Ok(_)) if context.is_over_limit() => Err(Raise::Memory),
        Ok(result) => result,
        Err(_) => Err(stack.fail("internal error")),
    }
}

/// Raises `error`.
///
/// # Safety
/// The caller owns nothing (L1).
unsafe fn raise(state: *mut ffi::lua_State, error: Raise) -> c_int {
    // SAFETY: L1, and the stack holds what the variant says.
    unsafe {
        match error {
            Raise::Value => ffi::lua_error(state),
            Raise::Text => raise_with_place(state),
            Raise::Argument(index) => {
                ffi::luaL_argerror(state, index, ffi::lua_tostring(state, -1))
            }
            Raise::Type(index, expected) => ffi::luaL_typerror(state, index, expected.as_ptr()),
            Raise::Memory => {
                ffi::lua_settop(state, 0);
                raise_text(state, c"not enough memory")
            }
            Raise::Again => {
                context(state).keep_error_place();
                ffi::lua_error(state)
            }
            Raise::Killed => {
                ffi::lua_settop(state, 0);
                end_killed(state, context(state))
            }
        }
    }
}

/// Raises the text on top, behind the place of the caller.
///
/// # Safety
/// L1, and a string lies on top.
pub(super) unsafe fn raise_with_place(state: *mut ffi::lua_State) -> ! {
    // SAFETY: L1.
    unsafe {
        ffi::luaL_where(state, 1);
        ffi::lua_insert(state, -2);
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

/// Raises a text as it is.
///
/// # Safety
/// L1.
pub(super) unsafe fn raise_text(state: *mut ffi::lua_State, text: &'static CStr) -> ! {
    // SAFETY: L1.
    unsafe {
        ffi::lua_pushstring(state, text.as_ptr());
        ffi::lua_error(state)
    }
}

/// What a killed script answers.
pub(crate) const KILLED: &str = "Script killed by user with SCRIPT KILL...";
const KILLED_TEXT: &CStr = c"Script killed by user with SCRIPT KILL...";

/// Raises the error that ends a killed script.
///
/// # Safety
/// L1.
pub(super) unsafe fn raise_killed(state: *mut ffi::lua_State, context: &Context) -> ! {
    let text = if context.is_loading() { c"FUNCTION LOAD timeout" } else { KILLED_TEXT };
    // SAFETY: L1.
    unsafe { raise_text(state, text) }
}

/// Ends a killed script. Whatever catches the error gets no further: the hook fires at every
/// instruction from now on.
///
/// # Safety
/// L1.
unsafe fn end_killed(state: *mut ffi::lua_State, context: &Context) -> ! {
    // SAFETY: L1.
    unsafe {
        ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, 1);
        raise_killed(state, context)
    }
}

/// Pays for work, from a closure of ours.
///
/// # Safety
/// L1.
pub(super) unsafe fn pay(state: *mut ffi::lua_State, units: u64) {
    // SAFETY: L1.
    unsafe {
        let context = context(state);
        if context.spend(units).is_err() {
            end_killed(state, context);
        }
    }
}

/// `table[key] = value` of the three arguments.
pub(super) unsafe extern "C-unwind" fn raw_set(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: L1. Whoever calls this has looked at the key.
    unsafe { ffi::lua_rawset(state, 1) }
    0
}

/// Notes where the error was raised, before the stack unwinds, and passes it on.
pub(super) unsafe extern "C-unwind" fn note_place(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: called by Lua as error handler, with the context as upvalue. Nothing here raises:
    // `lua_getinfo` with these letters does not allocate.
    unsafe {
        if context(state).takes_kept_place() {
            return 1;
        }
        let mut info: ffi::lua_Debug = std::mem::zeroed();
        let mut found = ffi::lua_getstack(state, 1, &mut info) != 0
            && ffi::lua_getinfo(state, c"Sl".as_ptr(), &mut info) != 0;
        if found && *info.what == b'C' as std::ffi::c_char {
            found = ffi::lua_getstack(state, 2, &mut info) != 0
                && ffi::lua_getinfo(state, c"Sl".as_ptr(), &mut info) != 0;
        }
        if found {
            let source = CStr::from_ptr(info.source).to_bytes();
            context(state).note_error_place(source, info.currentline);
        }
    }
    1
}

/// The key of the context in the registry, for the hook, which has no upvalues.
static CONTEXT_KEY: u8 = 0;

/// Lets [`hook`] find the context.
///
/// # Safety
/// As [`push_native`].
pub(super) unsafe fn register_context(state: *mut ffi::lua_State, context: &Context) {
    // SAFETY: as the caller promises.
    unsafe {
        ffi::lua_pushlightuserdata(state, ptr::from_ref(&CONTEXT_KEY) as *mut c_void);
        ffi::lua_pushlightuserdata(state, ptr::from_ref(context) as *mut c_void);
        ffi::lua_rawset(state, ffi::LUA_REGISTRYINDEX);
    }
}

/// Asks the host from time to time whether the script may go on.
///
/// A hook's error can be caught by `pcall`. Once killed, the hook of this coroutine fires at every
/// instruction, so that whatever catches the error gets no further; [`super::guard`] keeps other
/// coroutines from running on.
pub(super) unsafe extern "C-unwind" fn hook(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: Lua guarantees free slots to hooks, and `register_context` came first. L1.
    unsafe {
        ffi::lua_pushlightuserdata(state, ptr::from_ref(&CONTEXT_KEY) as *mut c_void);
        ffi::lua_rawget(state, ffi::LUA_REGISTRYINDEX);
        let context = &*ffi::lua_touserdata(state, -1).cast::<Context>();
        ffi::lua_pop(state, 1);
        if context.tick_or_kill().is_err() {
            end_killed(state, context);
        }
        set_hook(state, context);
    }
}

/// Makes the hook fire after as many instructions as the limits say.
///
/// # Safety
/// The state is valid, and `register_context` came first.
pub(super) unsafe fn set_hook(state: *mut ffi::lua_State, context: &Context) {
    let count = context.instructions_max();
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    // SAFETY: as the caller promises.
    unsafe {
        ffi::lua_sethook(state, Some(hook), ffi::LUA_MASKCOUNT, count.max(1));
    }
}
