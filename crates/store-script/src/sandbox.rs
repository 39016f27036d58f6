//! Builds what scripts can reach: two sets of globals, frozen, with nothing in them that reaches
//! outside.

use std::ffi::{CStr, c_int};

use crate::context::Environments;
use crate::library::{Entry, base, bit, cjson, cmsgpack, redis, set_all, string, structure, table};
use crate::lua::{Frozen, Function, Guarded, Raise, Stack, set_table_functions, wrap_load};

/// Functions of Lua's base library that are taken over as they are.
const PLAIN: &[&CStr] =
    &[c"assert", c"error", c"ipairs", c"rawequal", c"select", c"tostring", c"type", c"_VERSION"];
/// Functions of the base library that are taken over behind a guard.
const GUARDED: &[(&CStr, Guarded)] = &[
    (c"next", Guarded::Next),
    (c"rawget", Guarded::Read),
    (c"rawset", Guarded::Write),
    (c"setmetatable", Guarded::Write),
    (c"tonumber", Guarded::Parse),
    (c"pcall", Guarded::ProtectedCall),
    (c"xpcall", Guarded::ProtectedCallHandled),
];
/// Slots of the tables while building.
const LUA: c_int = 1;
const SHARED: c_int = 2;

/// What [`build`] leaves.
#[derive(Debug)]
pub(crate) struct Sandbox {
    /// The table that holds the globals of EVAL scripts, to set KEYS and ARGV in.
    pub(crate) script_globals: Function,
    /// The table that holds the globals of functions.
    pub(crate) function_globals: Function,
    /// What the text of a library sees while it loads.
    pub(crate) loading_globals: Function,
}

/// Builds the sandbox in a fresh state.
pub(crate) fn build(stack: &mut Stack<'_>) -> Result<Sandbox, Raise> {
    stack.push_globals();
    stack.push_table(0, 32)?;
    take_base(stack);
    take_coroutines(stack)?;
    take_libraries(stack)?;
    own_libraries(stack)?;

    let script_globals = globals(stack, redis::push_for_scripts, base::loadstring_of_scripts)?;
    let script = script_globals.environment;
    let function_globals =
        globals(stack, redis::push_for_functions, base::loadstring_of_functions)?;
    let function = function_globals.environment;
    stack.push_function(&script);
    stack.replace_globals();
    stack.context().environments.replace(Some(Environments { script, function }));

    stack.push_table(0, 1)?;
    redis::push_for_loading(stack)?;
    Frozen::refuse_missing(stack);
    Frozen::freeze(stack);
    stack.set_field(-2, c"redis");
    Frozen::refuse_missing(stack);
    let loading_globals = stack.keep();
    Ok(Sandbox {
        script_globals: script_globals.table,
        function_globals: function_globals.table,
        loading_globals,
    })
}

fn take_base(stack: &mut Stack<'_>) {
    for name in PLAIN {
        stack.get_field(LUA, name);
        stack.set_field(SHARED, name);
    }
    take_guarded(stack, LUA, SHARED, GUARDED);
    set_all(stack, SHARED, base::GLOBALS);

    stack.get_field(LUA, c"pairs");
    stack.get_field(SHARED, c"next");
    Guarded::Pairs.wrap(stack);
    stack.set_field(SHARED, c"pairs");
}

/// Takes functions of the table at `from` over into the one at `to`, each behind its guard.
fn take_guarded(stack: &mut Stack<'_>, from: c_int, to: c_int, functions: &[(&CStr, Guarded)]) {
    for (name, guard) in functions {
        stack.get_field(from, name);
        guard.wrap(stack);
        stack.set_field(to, name);
    }
}

fn take_coroutines(stack: &mut Stack<'_>) -> Result<(), Raise> {
    stack.get_field(LUA, c"coroutine");
    let lua = stack.top();
    stack.push_table(0, 6)?;
    let ours = stack.top();
    for name in [c"create", c"running", c"status", c"yield"] {
        stack.get_field(lua, name);
        stack.set_field(ours, name);
    }
    take_guarded(stack, lua, ours, &[(c"resume", Guarded::Resume)]);
    stack.get_field(lua, c"create");
    stack.get_field(lua, c"resume");
    Guarded::Wrap.wrap(stack);
    stack.set_field(ours, c"wrap");
    Frozen::freeze(stack);
    stack.set_field(SHARED, c"coroutine");
    stack.pop(1);
    Ok(())
}

fn take_libraries(stack: &mut Stack<'_>) -> Result<(), Raise> {
    stack.get_field(LUA, c"table");
    let lua_table = stack.top();
    set_table_functions(stack, lua_table);
    set_all(stack, lua_table, table::ENTRIES);
    Frozen::freeze(stack);
    stack.set_field(SHARED, c"table");

    stack.get_field(LUA, c"math");
    let math = stack.top();
    set_all(stack, math, base::MATH);
    Frozen::freeze(stack);
    stack.set_field(SHARED, c"math");

    stack.get_field(LUA, c"string");
    let lua_string = stack.top();
    set_all(stack, lua_string, string::ENTRIES);
    // Bytecode is of no use here, since nothing loads it.
    stack.push_nil();
    stack.set_field(lua_string, c"dump");
    Frozen::freeze(stack);
    take_getmetatable(stack, lua_string)?;
    stack.set_field(SHARED, c"string");
    Ok(())
}

/// Strings keep Lua's own metatable, through which `("x"):rep(3)` finds the library; a script that
/// asks for it gets a frozen one of the same looks.
fn take_getmetatable(stack: &mut Stack<'_>, string: c_int) -> Result<(), Raise> {
    stack.get_field(LUA, c"getmetatable");
    stack.push_table(0, 1)?;
    stack.push_copy(string);
    stack.set_field(-2, c"__index");
    Frozen::freeze(stack);
    Guarded::Metatable.wrap(stack);
    stack.set_field(SHARED, c"getmetatable");
    Ok(())
}

fn own_libraries(stack: &mut Stack<'_>) -> Result<(), Raise> {
    cjson::push(stack)?;
    Frozen::freeze(stack);
    stack.set_field(SHARED, c"cjson");
    cmsgpack::push(stack)?;
    Frozen::freeze(stack);
    stack.set_field(SHARED, c"cmsgpack");
    let libraries: [(&CStr, &[Entry]); 2] =
        [(c"struct", structure::ENTRIES), (c"bit", bit::ENTRIES)];
    for (name, entries) in libraries {
        stack.push_table(0, entries.len())?;
        let table = stack.top();
        set_all(stack, table, entries);
        Frozen::freeze(stack);
        stack.set_field(SHARED, name);
    }
    Ok(())
}

struct Globals {
    table: Function,
    environment: Function,
}

/// One set of globals: what is shared, and what is its own.
fn globals(
    stack: &mut Stack<'_>,
    push_redis: fn(&mut Stack<'_>) -> Result<(), Raise>,
    loadstring: crate::lua::Native,
) -> Result<Globals, Raise> {
    stack.push_table(0, 48)?;
    let table = stack.top();
    stack.push_nil();
    while stack.next(SHARED) {
        stack.push_copy(-2);
        stack.insert(-2);
        stack.set_entry(table)?;
    }
    push_redis(stack)?;
    Frozen::freeze(stack);
    stack.set_field(table, c"redis");
    stack.push_native(loadstring);
    stack.set_field(table, c"loadstring");
    stack.get_field(table, c"loadstring");
    stack.get_field(LUA, c"table");
    let lua_table = stack.top();
    stack.get_field(lua_table, c"concat");
    stack.remove(lua_table);
    wrap_load(stack);
    stack.set_field(table, c"load");
    stack.push_copy(table);
    Frozen::freeze(stack);
    Frozen::push_refusal(stack);
    Frozen::freeze(stack);
    Frozen::show_metatable(stack);
    stack.push_copy(-1);
    stack.set_field(table, c"_G");
    let environment = stack.keep();
    Frozen::refuse_missing(stack);
    Ok(Globals { table: stack.keep(), environment })
}
