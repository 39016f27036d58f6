//! The stack of a running call, with those operations that do not raise.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use mlua::ffi;

use super::entry::{self, Native, Raise, push_native};
use super::vm::Function;
use crate::context::Context;
use crate::number::to_c_integer;

/// What kind of value lies in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No slot at all.
    None,
    Nil,
    Boolean,
    /// `cjson.null` is the only one there is.
    LightUserdata,
    Number,
    String,
    Table,
    Function,
    /// Userdata and coroutines.
    Other,
}

impl Kind {
    /// Lua's word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::None => "no value",
            Kind::Nil => "nil",
            Kind::Boolean => "boolean",
            Kind::LightUserdata => "userdata",
            Kind::Number => "number",
            Kind::String => "string",
            Kind::Table => "table",
            Kind::Function => "function",
            Kind::Other => "thread",
        }
    }
}

/// The stack of one call. Exists only while the memory limit is lifted (L2 of the module).
///
/// Indexes are Lua's: from 1 at the bottom, from -1 at the top. Slots are read by `&self` and
/// changed by `&mut self`, so bytes borrowed from a string live until the stack next changes.
pub(crate) struct Stack<'a> {
    state: *mut ffi::lua_State,
    context: &'a Context,
    /// Slots up to this one stay as they are: what they hold is referred to.
    pinned: c_int,
}

impl<'a> Stack<'a> {
    /// # Safety
    /// The state is valid for `'a`, and its memory limit is lifted while this is used.
    pub(super) unsafe fn new(state: *mut ffi::lua_State, context: &'a Context) -> Self {
        Self { state, context, pinned: 0 }
    }

    pub(super) fn state(&self) -> *mut ffi::lua_State {
        self.state
    }

    pub(crate) fn context(&self) -> &'a Context {
        self.context
    }

    /// The number of values; in a native that has pushed nothing, of arguments.
    pub(crate) fn top(&self) -> c_int {
        // SAFETY: L2, as for every call below: reads do not raise and need no room.
        unsafe { ffi::lua_gettop(self.state) }
    }

    /// Drops or adds nils until there are `top` values.
    pub(crate) fn set_top(&mut self, top: c_int) {
        assert!(top >= self.pinned, "pinned slots stay");
        unsafe { ffi::lua_settop(self.state, top) }
    }

    /// Drops the topmost values.
    pub(crate) fn pop(&mut self, count: c_int) {
        assert!(count <= self.top() - self.pinned, "pinned slots stay");
        unsafe { ffi::lua_pop(self.state, count) }
    }

    /// Makes room for values to be pushed. Every call of ours starts with room for 20.
    ///
    /// Fails when the stack would pass Lua's limit of 8,000 values in one call.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), StackFull> {
        let count = c_int::try_from(count).map_err(|_| StackFull)?;
        match unsafe { ffi::lua_checkstack(self.state, count) } {
            0 => Err(StackFull),
            _ => Ok(()),
        }
    }

    /// What lies at `index`.
    pub(crate) fn kind(&self, index: c_int) -> Kind {
        match unsafe { ffi::lua_type(self.state, index) } {
            ffi::LUA_TNONE => Kind::None,
            ffi::LUA_TNIL => Kind::Nil,
            ffi::LUA_TBOOLEAN => Kind::Boolean,
            ffi::LUA_TLIGHTUSERDATA => Kind::LightUserdata,
            ffi::LUA_TNUMBER => Kind::Number,
            ffi::LUA_TSTRING => Kind::String,
            ffi::LUA_TTABLE => Kind::Table,
            ffi::LUA_TFUNCTION => Kind::Function,
            _ => Kind::Other,
        }
    }

    /// Whether nothing or nil is there.
    pub(crate) fn is_absent(&self, index: c_int) -> bool {
        matches!(self.kind(index), Kind::None | Kind::Nil)
    }

    /// False for nil and false, true for all else.
    pub(crate) fn truth(&self, index: c_int) -> bool {
        unsafe { ffi::lua_toboolean(self.state, index) != 0 }
    }

    /// The number there, if it is one.
    pub(crate) fn number(&self, index: c_int) -> Option<f64> {
        (self.kind(index) == Kind::Number).then(|| unsafe { ffi::lua_tonumber(self.state, index) })
    }

    /// The number there, or the one that the string there spells.
    pub(crate) fn number_like(&self, index: c_int) -> Option<f64> {
        unsafe {
            (ffi::lua_isnumber(self.state, index) != 0)
                .then(|| ffi::lua_tonumber(self.state, index))
        }
    }

    /// The bytes of the string there, if it is one.
    pub(crate) fn bytes(&self, index: c_int) -> Option<&[u8]> {
        if self.kind(index) != Kind::String {
            return None;
        }
        let mut length = 0;
        // SAFETY: the string lies on the stack until `&mut self` is used; strings do not move.
        unsafe {
            let start = ffi::lua_tolstring(self.state, index, &mut length);
            Some(std::slice::from_raw_parts(start.cast::<u8>(), length))
        }
    }

    /// Turns a number there into its text. Whether a string is there now.
    ///
    /// Not for the key of a running [`next`](Self::next).
    pub(crate) fn stringify(&mut self, index: c_int) -> bool {
        unsafe { !ffi::lua_tolstring(self.state, index, ptr::null_mut()).is_null() }
    }

    /// The border that `#` gives, metatables aside.
    pub(crate) fn raw_length(&self, index: c_int) -> usize {
        unsafe { ffi::lua_objlen(self.state, index) }
    }

    /// An address that tells tables apart.
    pub(crate) fn address(&self, index: c_int) -> usize {
        unsafe { ffi::lua_topointer(self.state, index) as usize }
    }

    pub(crate) fn push_nil(&mut self) {
        unsafe { ffi::lua_pushnil(self.state) }
    }

    pub(crate) fn push_boolean(&mut self, value: bool) {
        unsafe { ffi::lua_pushboolean(self.state, c_int::from(value)) }
    }

    pub(crate) fn push_number(&mut self, value: f64) {
        unsafe { ffi::lua_pushnumber(self.state, value) }
    }

    /// The null of `cjson`.
    pub(crate) fn push_null(&mut self) {
        unsafe { ffi::lua_pushlightuserdata(self.state, ptr::null_mut::<c_void>()) }
    }

    /// A string. Fails when the run has used up its memory.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), Raise> {
        self.check_memory(bytes.len())?;
        self.context.allocator().note_string(bytes.len());
        unsafe { ffi::lua_pushlstring(self.state, bytes.as_ptr().cast(), bytes.len()) };
        Ok(())
    }

    /// An empty table with room. Fails when the run has used up its memory.
    pub(crate) fn push_table(&mut self, list_room: usize, map_room: usize) -> Result<(), Raise> {
        /// Room is a hint from outside: beyond this the table grows as it fills.
        const ROOM_MAX: usize = 4096;
        self.check_memory(0)?;
        let (list, map) = (list_room.min(ROOM_MAX) as c_int, map_room.min(ROOM_MAX) as c_int);
        unsafe { ffi::lua_createtable(self.state, list, map) };
        Ok(())
    }

    pub(crate) fn push_native(&mut self, native: Native) {
        unsafe { push_native(self.state, self.context, native) }
    }

    /// Replaces `count` values on top by a native that keeps them.
    pub(crate) fn push_closure(&mut self, native: Native, count: c_int) {
        assert!(count <= self.top() - self.pinned, "a closure keeps values that are there");
        unsafe { entry::push_closure(self.state, self.context, native, count) }
    }

    /// The string that this native keeps.
    pub(crate) fn closed_bytes(&self, number: c_int) -> &'a [u8] {
        let index = entry::closed_index(number);
        assert!(self.kind(index) == Kind::String, "the closure keeps a string");
        let mut length = 0;
        // SAFETY: the closure runs and keeps its strings: only numbers of it are ever replaced.
        unsafe {
            let start = ffi::lua_tolstring(self.state, index, &mut length);
            std::slice::from_raw_parts(start.cast::<u8>(), length)
        }
    }

    /// The number that this native keeps.
    pub(crate) fn closed_number(&self, number: c_int) -> f64 {
        self.number(entry::closed_index(number)).unwrap_or_default()
    }

    /// Replaces a number that this native keeps.
    pub(crate) fn set_closed_number(&mut self, number: c_int, value: f64) {
        let index = entry::closed_index(number);
        assert!(self.kind(index) == Kind::Number, "the closure keeps a number");
        self.push_number(value);
        unsafe { ffi::lua_replace(self.state, index) }
    }

    pub(crate) fn push_function(&mut self, function: &Function) {
        unsafe {
            ffi::lua_rawgeti(self.state, ffi::LUA_REGISTRYINDEX, function.key().into());
        }
    }

    /// A second reference to the value at `index`, on top.
    pub(crate) fn push_copy(&mut self, index: c_int) {
        unsafe { ffi::lua_pushvalue(self.state, index) }
    }

    /// Moves the top to `index`, shifting up.
    pub(crate) fn insert(&mut self, index: c_int) {
        self.expect_unpinned(index);
        unsafe { ffi::lua_insert(self.state, index) }
    }

    /// Moves the top to `index`, over what was there.
    pub(crate) fn replace(&mut self, index: c_int) {
        self.expect_unpinned(index);
        unsafe { ffi::lua_replace(self.state, index) }
    }

    /// Drops the value at `index`, shifting down.
    pub(crate) fn remove(&mut self, index: c_int) {
        self.expect_unpinned(index);
        unsafe { ffi::lua_remove(self.state, index) }
    }

    /// Pushes `table[position]`, metatables aside.
    pub(crate) fn get_item(&mut self, table: c_int, position: c_int) {
        self.expect_table(table);
        unsafe {
            ffi::lua_rawgeti(self.state, table, position.into());
        }
    }

    /// `table[position] = top`, which is popped.
    pub(crate) fn set_item(&mut self, table: c_int, position: c_int) -> Result<(), Raise> {
        self.expect_table(table);
        self.check_memory(0)?;
        unsafe { ffi::lua_rawseti(self.state, table, position.into()) };
        Ok(())
    }

    /// Pushes `table[name]`, metatables aside.
    pub(crate) fn get_field(&mut self, table: c_int, name: &CStr) {
        self.expect_table(table);
        unsafe {
            let table = ffi::lua_absindex(self.state, table);
            ffi::lua_pushstring(self.state, name.as_ptr());
            ffi::lua_rawget(self.state, table);
        }
    }

    /// `table[name] = top`, which is popped.
    pub(crate) fn set_field(&mut self, table: c_int, name: &CStr) {
        self.expect_table(table);
        unsafe {
            let table = ffi::lua_absindex(self.state, table);
            ffi::lua_pushstring(self.state, name.as_ptr());
            ffi::lua_insert(self.state, -2);
            ffi::lua_rawset(self.state, table);
        }
    }

    /// `table[key] = value` of the two values on top, which are popped.
    ///
    /// Fails, with both still there, when the key is nil or NaN or memory is used up.
    pub(crate) fn set_entry(&mut self, table: c_int) -> Result<(), Raise> {
        self.expect_table(table);
        self.check_memory(0)?;
        // `rawset` raises for these two.
        if self.kind(-2) == Kind::Nil {
            self.push_text(b"table index is nil");
            return Err(Raise::Value);
        }
        if self.number(-2).is_some_and(f64::is_nan) {
            self.push_text(b"table index is NaN");
            return Err(Raise::Value);
        }
        if self.kind(-2) == Kind::Number && self.context.allocator().has_large_tables() {
            return self.set_number_entry(table);
        }
        unsafe { ffi::lua_rawset(self.state, table) };
        Ok(())
    }

    /// The same where the room that it takes may be refused. See [`chains`](super::chains).
    fn set_number_entry(&mut self, table: c_int) -> Result<(), Raise> {
        self.reserve(4).map_err(|_| Raise::Memory)?;
        let status = unsafe {
            let table = ffi::lua_absindex(self.state, table);
            ffi::lua_pushcclosure(self.state, entry::raw_set, 0);
            ffi::lua_pushvalue(self.state, table);
            ffi::lua_pushvalue(self.state, -4);
            ffi::lua_pushvalue(self.state, -4);
            let limited = self.context.restore_limit();
            let status = ffi::lua_pcall(self.state, 3, 0, 0);
            drop(limited);
            status
        };
        if status == ffi::LUA_OK {
            self.pop(2);
            return Ok(());
        }
        self.pop(1);
        Err(Raise::Memory)
    }

    /// Replaces the key on top by the next key and its value, or pops it and answers false at the
    /// end. Starts from nil. The table must not be changed meanwhile, or Lua would raise.
    pub(crate) fn next(&mut self, table: c_int) -> bool {
        self.expect_table(table);
        unsafe { ffi::lua_next(self.state, table) != 0 }
    }

    /// Collects all garbage.
    pub(crate) fn collect_garbage(&mut self) {
        unsafe {
            ffi::lua_gc(self.state, ffi::LUA_GCCOLLECT, 0);
        }
    }

    /// Collects some garbage. Whether that was the end of a cycle.
    pub(crate) fn step_garbage(&mut self) -> bool {
        /// Kilobytes that are looked at.
        const STEP: c_int = 256;
        unsafe { ffi::lua_gc(self.state, ffi::LUA_GCSTEP, STEP) != 0 }
    }

    /// An error whose text follows the place in the script.
    pub(crate) fn fail(&mut self, text: impl AsRef<[u8]>) -> Raise {
        self.push_text(text.as_ref());
        Raise::Text
    }

    /// "bad argument #index to 'function' (text)".
    pub(crate) fn bad_argument(&mut self, index: c_int, text: impl AsRef<[u8]>) -> Raise {
        self.push_text(text.as_ref());
        Raise::Argument(index)
    }

    fn push_text(&mut self, text: &[u8]) {
        // Errors of deep recursions find the stack full; what it holds is not needed any more.
        // What raises the text puts the place and more beside it.
        if self.reserve(5).is_err() {
            self.set_top(self.pinned);
        }
        unsafe { ffi::lua_pushlstring(self.state, text.as_ptr().cast(), text.len()) };
    }

    /// Fails when `more` bytes would pass what the run may use.
    pub(crate) fn check_memory(&self, more: usize) -> Result<(), Raise> {
        if self.context.has_memory_for(more) { Ok(()) } else { Err(Raise::Memory) }
    }

    fn expect_unpinned(&self, index: c_int) {
        let slot = if index < 0 { self.top() + 1 + index } else { index };
        assert!(slot > self.pinned, "pinned slots stay");
    }

    pub(super) fn expect_table(&self, index: c_int) {
        // A bug of ours, and the calls that follow would read the slot as a table.
        assert!(self.kind(index) == Kind::Table, "slot {index} holds no table");
    }
}

/// Lua's stack can take no more values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackFull;

// Arguments, checked the way Lua's own functions check theirs.
impl<'a> Stack<'a> {
    /// The string argument at `index`; numbers are turned into text.
    pub(crate) fn check_bytes(&mut self, index: c_int) -> Result<&[u8], Raise> {
        if !matches!(self.kind(index), Kind::String | Kind::Number) {
            return Err(Raise::Type(index, c"string"));
        }
        self.stringify(index);
        self.bytes(index).ok_or(Raise::Type(index, c"string"))
    }

    /// The string argument at `index`, for as long as this native runs: its slot and those below
    /// cannot be changed any more. Numbers are turned into text.
    pub(crate) fn pin(&mut self, index: c_int) -> Result<&'a [u8], Raise> {
        assert!(index > 0, "arguments are pinned");
        let bytes = ptr::from_ref(self.check_bytes(index)?);
        self.pinned = self.pinned.max(index);
        // SAFETY: the slot keeps the string, and every call that could change the slot refuses
        // to. The stack itself lives no longer than the native.
        Ok(unsafe { &*bytes })
    }

    /// The numeric argument at `index`.
    pub(crate) fn check_number(&self, index: c_int) -> Result<f64, Raise> {
        self.number_like(index).ok_or(Raise::Type(index, c"number"))
    }

    /// The numeric argument at `index`, cut to an integer.
    pub(crate) fn check_integer(&self, index: c_int) -> Result<i64, Raise> {
        self.check_number(index).map(|number| number as i64)
    }

    /// The numeric argument at `index`, as C casts it.
    pub(crate) fn check_c_integer(&self, index: c_int) -> Result<i64, Raise> {
        self.check_number(index).map(to_c_integer)
    }

    /// As [`check_integer`](Self::check_integer), or `default` when nothing is there.
    pub(crate) fn optional_integer(&self, index: c_int, default: i64) -> Result<i64, Raise> {
        if self.is_absent(index) { Ok(default) } else { self.check_integer(index) }
    }
}
