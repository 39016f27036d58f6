//! Calls from natives back into scripts. They are protected: an error must not cross the native's
//! frame (L2), so it comes back as a [`Raise`].

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use mlua::ffi;

use super::entry::{self, Raise};
use super::stack::{Kind, Stack};
use crate::context::Context;

/// The slot of the function that notes where errors come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handler(c_int);

/// Tables that `__index` may lead through.
const INDEX_STEPS_MAX: usize = 100;

impl Stack<'_> {
    /// Pushes what [`call_value`](Self::call_value) needs.
    pub(crate) fn push_handler(&mut self) -> Handler {
        let context = ptr::from_ref::<Context>(self.context()) as *mut c_void;
        // SAFETY: L2; the handler gets the context as its upvalue.
        unsafe {
            ffi::lua_pushlightuserdata(self.state(), context);
            ffi::lua_pushcclosure(self.state(), entry::note_place, 1);
        }
        Handler(self.top())
    }

    /// Calls the function below the `arguments` on top. They give way to `results` values.
    pub(crate) fn call_value(
        &mut self,
        arguments: c_int,
        results: c_int,
        handler: Handler,
    ) -> Result<(), Raise> {
        let context = self.context();
        // SAFETY: the call is protected and runs within the limit; what it calls lies above the
        // pinned slots.
        let status = unsafe {
            let limited = context.restore_limit();
            let running = context.allocator().running();
            let status = ffi::lua_pcall(self.state(), arguments, results, handler.0);
            context.allocator().set_running(running);
            drop(limited);
            status
        };
        match status {
            _ if context.is_killed() => Err(Raise::Killed),
            ffi::LUA_OK => Ok(()),
            ffi::LUA_ERRRUN => Err(Raise::Again),
            ffi::LUA_ERRMEM => Err(Raise::Memory),
            _ => Err(Raise::Value),
        }
    }

    /// Replaces the key on top by `table[key]`, as scripts see it: by `__index`, too.
    pub(crate) fn get_indexed(&mut self, table: c_int) -> Result<(), Raise> {
        let key = self.top();
        self.push_copy(table);
        for _ in 0..INDEX_STEPS_MAX {
            self.context().spend(4)?;
            let value = self.top();
            if self.kind(value) == Kind::Table {
                self.push_copy(key);
                self.get_entry(value);
                if self.kind(-1) != Kind::Nil {
                    self.replace_down_to(key);
                    return Ok(());
                }
                self.pop(1);
                if !self.push_metamethod(value, c"__index") {
                    self.push_nil();
                    self.replace_down_to(key);
                    return Ok(());
                }
            } else if !self.push_metamethod(value, c"__index") {
                let kind = self.kind(value).name();
                self.push_bytes(format!("attempt to index a {kind} value").as_bytes())?;
                return Err(Raise::Value);
            }
            if self.kind(-1) == Kind::Function {
                return self.call_index(value, key);
            }
            self.replace(value);
        }
        self.push_bytes(b"loop in gettable")?;
        Err(Raise::Value)
    }

    /// Calls the function on top with the value and the key.
    fn call_index(&mut self, value: c_int, key: c_int) -> Result<(), Raise> {
        let function = self.top();
        let handler = self.push_handler();
        self.push_copy(function);
        self.push_copy(value);
        self.push_copy(key);
        self.call_value(2, 1, handler)?;
        self.replace_down_to(key);
        Ok(())
    }

    /// Moves the top to `slot` and drops what lay above.
    fn replace_down_to(&mut self, slot: c_int) {
        self.replace(slot);
        self.set_top(slot);
    }

    /// Replaces the key on top by `table[key]`, metatables aside.
    fn get_entry(&mut self, table: c_int) {
        self.expect_table(table);
        // SAFETY: L2; a raw read does not raise.
        unsafe {
            ffi::lua_rawget(self.state(), table);
        }
    }

    /// Pushes what the metatable of the value has under that name, if anything.
    fn push_metamethod(&mut self, index: c_int, name: &CStr) -> bool {
        // SAFETY: L2.
        if unsafe { ffi::lua_getmetatable(self.state(), index) } == 0 {
            return false;
        }
        let metatable = self.top();
        self.get_field(metatable, name);
        self.remove(metatable);
        if self.kind(-1) == Kind::Nil {
            self.pop(1);
            return false;
        }
        true
    }
}
