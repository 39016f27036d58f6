//! The virtual machine: its life, its memory, compiling and calling.

use std::ffi::{CStr, c_char, c_int, c_void};

use mlua::{Lua, LuaOptions, StdLib, ffi};

use super::entry::{self, Raise};
use super::memory::{Memory, Reach};
use super::stack::Stack;
use crate::context::Context;
use crate::host::Host;

/// Garbage of earlier runs up to this size is left to the incremental collector.
const GARBAGE_MAX: usize = 1 << 20;

/// A Lua state and what its natives share.
pub(crate) struct Vm {
    state: *mut ffi::lua_State,
    // Boxed, since the state holds its address; it owns the state, too.
    context: Box<Context>,
    /// Memory in use after the last full collection.
    floor: usize,
}

// SAFETY: the state, the context and every reference to them live in this value and move with it.
// mlua without its feature `send` counts references without atomics, but all counted handles are
// in here; neither Lua nor mlua for Lua 5.1 keeps thread-local data.
unsafe impl Send for Vm {}

/// A Lua value that is kept from collection: a compiled chunk, a function, or an environment.
/// Freed by [`Vm::release`].
#[derive(Debug)]
pub(crate) struct Function(c_int);

impl Function {
    pub(super) fn key(&self) -> c_int {
        self.0
    }
}

/// How a call ended, when not well. The error lies on top of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// An error was raised; the context knows where.
    Raised,
    /// Memory ran out, or the handler failed.
    Unplaced,
}

impl Vm {
    /// A state with Lua's base, string, table and math libraries, not yet fit for scripts.
    pub(crate) fn new(context: impl FnOnce(Lua, Memory) -> Context) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        // SAFETY: only asks for the address of the state, which lives as long as `lua`, which
        // goes into the context.
        let state = lua.exec_raw_lua(|raw| raw.state());
        // SAFETY: as above; the context drops what counts its memory before it drops the state.
        let memory = unsafe { Memory::of(state) };
        let context = Box::new(context(lua, memory));
        // SAFETY: the state is fresh and has free slots; the box gives the context an address
        // that stays, and drops it only after the state was last used.
        unsafe { entry::register_context(state, &context) };
        Ok(Self { state, context, floor: 0 })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Works on the stack from outside of any call. What is left on it is dropped.
    pub(crate) fn with_stack<R>(&mut self, work: impl FnOnce(&mut Stack<'_>) -> R) -> R {
        self.on_stack(work)
    }

    fn on_stack<R>(&self, work: impl FnOnce(&mut Stack<'_>) -> R) -> R {
        let _lifted = self.context.lift_limit();
        // SAFETY: the state is valid, and the limit is lifted until the end of this function.
        let mut stack = unsafe { Stack::new(self.state, &self.context) };
        stack.set_top(0);
        let result = work(&mut stack);
        stack.set_top(0);
        result
    }

    /// Compiles text (never bytecode) that will see `environment` as its globals.
    ///
    /// Fails with Lua's message.
    pub(crate) fn compile(
        &mut self,
        source: &[u8],
        name: &CStr,
        environment: &Function,
    ) -> Result<Function, Vec<u8>> {
        self.context.allocator().forget_chains();
        self.context.start_limit();
        let compiled = self.on_stack(|stack| {
            stack.compile(source, name)?;
            stack.set_environment(environment);
            Ok(stack.keep())
        });
        self.context.end_limit();
        if self.context.allocator().met_chains() {
            self.collect();
        }
        compiled
    }

    /// Calls `function` with what `arguments` pushes, and has `finish` look at the result, which
    /// lies on top as the error does. Natives ask `host`. `reach` says whose strings it may meet.
    pub(crate) fn call<R>(
        &mut self,
        function: &Function,
        reach: Reach,
        host: &mut dyn Host,
        arguments: impl FnOnce(&mut Stack<'_>) -> Result<c_int, Raise>,
        finish: impl FnOnce(&mut Stack<'_>, Result<(), CallError>) -> R,
    ) -> R {
        self.context.allocator().begin_run(reach);
        let result = self.context.run(host, || {
            self.on_stack(|stack| {
                let outcome = stack.call(function, arguments);
                finish(stack, outcome)
            })
        });
        if reach == Reach::Kept {
            self.context.allocator().keep_longest();
        }
        self.collect_if_due();
        result
    }

    /// Lets the collector have what `function` refers to.
    pub(crate) fn release(&mut self, function: Function) {
        // SAFETY: the key came from `luaL_ref` of this state. Freeing a reference may grow the
        // registry, so the limit is lifted (L2).
        self.with_stack(|stack| unsafe {
            ffi::luaL_unref(stack.state(), ffi::LUA_REGISTRYINDEX, function.0);
        });
    }

    /// Bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.context.memory()
    }

    /// One script's garbage must not be counted as the next one's use for long.
    fn collect_if_due(&mut self) {
        let met_chains = self.context.allocator().met_chains();
        if met_chains || self.memory() > self.floor + self.floor / 2 + GARBAGE_MAX {
            self.collect();
        }
    }

    /// Collects all garbage.
    pub(crate) fn collect(&mut self) {
        self.with_stack(|stack| stack.collect_garbage());
        self.floor = self.memory();
    }
}

/// What the parser has not seen yet.
struct SourceReader<'a> {
    rest: &'a [u8],
    context: &'a Context,
}

/// Hands the parser a piece of the source, and ticks in between.
unsafe extern "C-unwind" fn read_source(
    state: *mut ffi::lua_State,
    data: *mut c_void,
    length: *mut usize,
) -> *const c_char {
    /// Bytes of a piece, and units of work that parsing one of them takes.
    const PIECE: usize = 4096;
    const BYTE: u64 = 8;
    /// How slow a table of constants may be where nothing ticks.
    const SLOWNESS_MAX: usize = 32;
    // SAFETY: `compile` passes its reader, which is used by nobody else meanwhile. L1: the parser
    // runs protected.
    unsafe {
        let reader = &mut *data.cast::<SourceReader<'_>>();
        let (piece, rest) = reader.rest.split_at(reader.rest.len().min(PIECE));
        reader.rest = rest;
        let memory = reader.context.allocator();
        let is_running = memory.is_running();
        if !is_running && memory.look_at_chains() > SLOWNESS_MAX {
            entry::raise_text(state, c"too many constants with the same hash");
        }
        if is_running && reader.context.spend(piece.len() as u64 * BYTE).is_err() {
            entry::raise_text(state, c"killed");
        }
        *length = piece.len();
        if piece.is_empty() { std::ptr::null() } else { piece.as_ptr().cast() }
    }
}

impl Stack<'_> {
    /// Pushes the function that `source` compiles to.
    ///
    /// The collector stands still meanwhile: the parser of Lua 5.1.5 holds values that it does
    /// not protect from collection (CVE-2025-49844).
    pub(crate) fn compile(&mut self, source: &[u8], name: &CStr) -> Result<(), Vec<u8>> {
        if source.first() == Some(&0x1b) {
            return Err(b"attempt to load a binary chunk (only text is allowed)".to_vec());
        }
        let state = self.state();
        // It may hold a string as long as itself.
        self.context().allocator().note_string(source.len());
        // SAFETY: `lua_load` runs protected and returns its errors, so that it may run
        // within the limit.
        let status = unsafe {
            ffi::lua_gc(state, ffi::LUA_GCSTOP, 0);
            let _limited = self.context().restore_limit();
            let mut reader = SourceReader { rest: source, context: self.context() };
            let data = std::ptr::from_mut(&mut reader).cast::<c_void>();
            let status = ffi::lua_load(state, read_source, data, name.as_ptr());
            ffi::lua_gc(state, ffi::LUA_GCRESTART, 0);
            status
        };
        if status == ffi::LUA_OK {
            return Ok(());
        }
        let text = self.bytes(-1).unwrap_or(b"not enough memory").to_vec();
        self.pop(1);
        Err(text)
    }

    /// Makes the value kept as `environment` the globals of the function on top.
    pub(crate) fn set_environment(&mut self, environment: &Function) {
        self.push_function(environment);
        self.expect_environment();
        // SAFETY: L2; a function and a table lie on top.
        unsafe {
            ffi::lua_setfenv(self.state(), -2);
        }
    }

    fn expect_environment(&self) {
        assert!(self.kind(-1) == super::Kind::Table, "environments are tables");
        assert!(self.kind(-2) == super::Kind::Function, "functions have environments");
    }

    /// Pops the top and keeps it from collection.
    pub(crate) fn keep(&mut self) -> Function {
        // SAFETY: L2.
        Function(unsafe { ffi::luaL_ref(self.state(), ffi::LUA_REGISTRYINDEX) })
    }

    /// Makes the table on top what the main chunk and coroutines have for globals, and pops it.
    pub(crate) fn replace_globals(&mut self) {
        assert!(self.kind(-1) == super::Kind::Table, "globals are a table");
        // SAFETY: L2.
        unsafe { ffi::lua_replace(self.state(), ffi::LUA_GLOBALSINDEX) }
    }

    /// Pushes the table of Lua's own globals.
    pub(crate) fn push_globals(&mut self) {
        // SAFETY: L2.
        unsafe { ffi::lua_pushvalue(self.state(), ffi::LUA_GLOBALSINDEX) }
    }

    fn call(
        &mut self,
        function: &Function,
        arguments: impl FnOnce(&mut Stack<'_>) -> Result<c_int, Raise>,
    ) -> Result<(), CallError> {
        let state = self.state();
        let context = self.context();
        // SAFETY: L2; the handler gets the context as its upvalue.
        unsafe {
            let address = std::ptr::from_ref(context) as *mut c_void;
            ffi::lua_pushlightuserdata(state, address);
            ffi::lua_pushcclosure(state, entry::note_place, 1);
        }
        self.push_function(function);
        let Ok(count) = arguments(self) else {
            self.push_bytes(b"not enough memory").ok();
            return Err(CallError::Unplaced);
        };
        context.forget_error_place();
        // SAFETY: the call runs protected, within the limit, and ends with one value on top. Only
        // Lua's frames and those of `entry`, `guard` and `frozen` lie above this one.
        let status = unsafe {
            entry::set_hook(state, context);
            let before = context.allocator().set_running(state);
            context.start_limit();
            let limited = context.restore_limit();
            let status = ffi::lua_pcall(state, count, 1, 1);
            drop(limited);
            context.end_limit();
            context.allocator().set_running(before);
            ffi::lua_sethook(state, None, 0, 0);
            status
        };
        match status {
            ffi::LUA_OK => Ok(()),
            ffi::LUA_ERRRUN => Err(CallError::Raised),
            _ => Err(CallError::Unplaced),
        }
    }
}
