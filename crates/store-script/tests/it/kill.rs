//! SCRIPT KILL works inside every library function: each ticks while it works.

use store_script::{Limits, ScriptOutcome};

use crate::store::{Memory, Store, limits};

#[track_caller]
fn assert_killed(code: &str, limits: Limits) {
    let mut store = Store::with_limits(Memory::default(), limits);
    store.host.kill_at = Some(3);
    let reply = store.eval(code);
    assert!(reply.contains("Script killed by user"), "{code}: {}", &reply[..reply.len().min(200)]);
    assert_eq!(store.outcome, Some(ScriptOutcome::Killed), "{code}");
    assert_eq!(store.host.ticks, 3, "{code}: it ran on after the kill");
    store.host.kill_at = None;
    assert_eq!(store.eval("return ('x'):rep(3)"), "$3\\r\\nxxx\\r\\n", "{code}");
}

#[test]
fn searches_and_sorts_that_would_not_end_are_killed() {
    let codes = [
        "return string.find(('a'):rep(5000), '.-.-.-.-b', -0.5)",
        "return ('a'):rep(1e6):find('[' .. ('b'):rep(1e6) .. ']')",
        "return ('a'):rep(1e5):find('.-.-.-b')",
        "return ('a'):rep(1e5):match('(a*)(a*)b')",
        "return ('a'):rep(40):find(('a?'):rep(40) .. ('a'):rep(40) .. 'b')",
        "return ('a'):rep(1e5):gsub('a-b', '')",
        "for _ in ('^'):rep(1e5):gmatch('^^-b') do end",
        "return ('a'):rep(4e6):find(('a'):rep(2e6) .. 'b', 1, true)",
        "return ('('):rep(1e6):gsub('%b()', '')",
        "local t = {} for i = 1, 2e5 do t[i] = i % 2 end local n = 0 \
         table.sort(t, function(a, b) n = n + 1 return n % 3 == 0 end) return n",
        "local t = {} table.insert(t, -2^31, 1)",
    ];
    for code in codes {
        assert_killed(code, Limits::default());
    }
}

/// McIlroy's adversary: it decides the order while it is asked, so that every pivot is the worst.
#[test]
fn a_sort_against_an_adversary_is_killed() {
    let code = "local n, gas, solid, candidate, values, items = 1e5, 1e9, 0, 0, {}, {} \
                for i = 1, n do values[i] = gas items[i] = i end \
                table.sort(items, function(x, y) \
                  if values[x] == gas and values[y] == gas then \
                    if x == candidate then values[x] = solid else values[y] = solid end \
                    solid = solid + 1 \
                  end \
                  if values[x] == gas then candidate = x \
                  elseif values[y] == gas then candidate = y end \
                  return values[x] < values[y] \
                end) \
                table.sort(items, nil) local sorted = {} \
                for i = 1, n do sorted[i] = values[i] end \
                while true do table.sort({unpack(sorted, 1, 5000)}) end";
    assert_killed(code, limits(|limits| limits.tick_instructions = 1_000_000));
}

/// Each works for long in one function; `ARGV[1]` is a megabyte of `x`.
const LONG_CALLS: &[&str] = &[
    "return #('ab'):rep(1e7)",
    "return #ARGV[1]:upper()",
    "return #ARGV[1]:lower()",
    "return #ARGV[1]:reverse()",
    "return ARGV[1]:find('y', 1, true)",
    "return ARGV[1]:find('y')",
    "return ARGV[1]:find('[y]')",
    "return ARGV[1]:match('y')",
    "return ARGV[1]:gmatch('y')()",
    "return ARGV[1]:gsub('x', '')",
    "return ARGV[1]:gsub('x', 'y')",
    "return ARGV[1]:gsub('', {})",
    "return ARGV[1]:gsub('y*', '%0')",
    "return ('x'):find(ARGV[1])",
    "return ('x'):find('[' .. ARGV[1])",
    "return ('x'):gsub('x', ARGV[1])",
    "return ('%s'):format(ARGV[1])",
    "return ('%q'):format(ARGV[1])",
    "return string.format(ARGV[1])",
    "return table.concat({'a', 'b', 'c', 'd', 'e'}, ARGV[1])",
    "return table.concat({unpack(loadstring('return {' .. ('\"\",'):rep(7000) .. '}')())})",
    "local t = cmsgpack.unpack('\\221\\0\\3\\0\\0' .. ('\\1'):rep(196608)) \
     return table.concat(t, '')",
    "table.insert({}, -1e6, 1)",
    "local t = {[2^20] = 1} return table.insert(t, -1e6, 1)",
    "return redis.sha1hex(ARGV[1])",
    "return redis.error_reply(ARGV[1])",
    "return redis.status_reply(ARGV[1])",
    "return cjson.encode(ARGV[1])",
    "return cjson.decode('\"' .. ARGV[1] .. '\"')",
    "return cjson.decode((' '):rep(1e6))",
    "return cjson.decode('[' .. ('1,'):rep(1e5) .. '1]')",
    "return cmsgpack.pack(ARGV[1], ARGV[1])",
    "return cmsgpack.unpack(cmsgpack.pack(ARGV[1]))",
    "return cmsgpack.unpack('\\221\\0\\3\\0\\0' .. ('\\1'):rep(196608))",
    "return struct.pack(('x'):rep(1e6))",
    "return struct.size(('x'):rep(1e6))",
    "return struct.unpack(('x'):rep(1e6), ARGV[1])",
    "return struct.unpack('s', ARGV[1] .. '\\0')",
    "return struct.pack('s', ARGV[1])",
    "return loadstring('return ' .. ('1+'):rep(1e5) .. '1')",
    "return load(function() return ARGV[1] end)",
    "return load(math.random)",
    "local t = {} for i = 1, 90 do t = setmetatable({}, {__index = t}) end \
     return ARGV[1]:sub(1, 2000):gsub('x', t)",
    "return tonumber(ARGV[1]) or tonumber(ARGV[1], 36)",
    "local a, b = ARGV[1] .. 'a', ARGV[1] .. 'b' table.sort({a, b, a, b, a, b, a, b})",
    "return redis.call('ECHO', ARGV[1])",
    "return redis.call('SET', 'k', ARGV[1])",
    "return collectgarbage()",
    "local t = cmsgpack.unpack('\\221\\0\\3\\0\\0' .. ('\\1'):rep(196608)) return t",
    "local t = {} for i = 1, 20 do t = {t, t} end return cjson.encode(t)",
    "local t = {} for i = 1, 14 do t = {t, t} end return cmsgpack.pack(t)",
    "local t = {} for i = 1, 20 do t = {t, t} end return t",
    "local t = {} for i = 1, 20 do t = {map = {a = t, b = t}} end return t",
];

/// No hook fires here: the ticks are those of the functions themselves.
#[test]
fn every_library_function_that_takes_long_ticks_by_itself() {
    let argument = "x".repeat(1 << 20);
    let mut silent = Vec::new();
    for code in LONG_CALLS {
        let limits = limits(|limits| {
            limits.tick_instructions = u32::MAX;
            limits.tick_work = 1000;
        });
        let mut store = Store::with_limits(Memory::default(), limits);
        store.host.kill_at = Some(2);
        store.ask(&[b"EVAL", code.as_bytes(), b"0", argument.as_bytes()]);
        if store.outcome != Some(ScriptOutcome::Killed) {
            silent.push(format!("{code}: {} ticks, {:?}", store.host.ticks, store.outcome));
        } else {
            assert_eq!(store.host.ticks, 2, "{code}: it ran on after the kill");
        }
    }
    assert!(silent.is_empty(), "{} do not tick:\n{}", silent.len(), silent.join("\n"));
}

/// Each coroutine counts its own instructions, and none of these gets far.
#[test]
fn many_coroutines_in_turn_do_not_hide_a_script_from_the_kill() {
    let code = "local all = {} for i = 1, 500 do all[i] = coroutine.wrap(function() while true do \
                for i = 1, 100 do end coroutine.yield() end end) end redis.call('PING') \
                for round = 1, 100 do for i = 1, 500 do all[i]() end end";
    let limits = limits(|limits| limits.tick_instructions = 100_000_000);
    let mut store = Store::with_limits(Memory::default(), limits);
    // Making them ticks, too: by what it allocates.
    store.host.kill_at = Some(1000);
    store.eval(code);
    assert_eq!(store.outcome, Some(ScriptOutcome::Killed), "{} ticks", store.host.ticks);
}

/// Instructions that look at every byte of a long string tick more often, the longer it is.
#[test]
fn instructions_on_long_strings_tick_more_often() {
    let codes = [
        "local a = ('x'):rep(1e7) local b = a .. 'y' a = a .. 'x' while true do local c = a < b end",
        "local a = ('1'):rep(1e7) while true do local c = a + 1 end",
        "local a, b = ARGV[1] .. 'a', ARGV[1] .. 'b' while true do local c = a < b end",
        "local a = ARGV[1] while true do local c = a < KEYS[1] end",
        "local t = setmetatable({}, {__index = function(t, k) return ARGV[1] < ARGV[1] .. k end}) \
         while true do local c = t.x end",
        "coroutine.wrap(function() while true do local c = ARGV[1] < KEYS[1] end end)()",
    ];
    let long = "1".repeat(10_000_000);
    for code in codes {
        let mut store = Store::new(Memory::default());
        store.host.kill_at = Some(3);
        store.ask(&[b"EVAL", code.as_bytes(), b"1", long.as_bytes(), long.as_bytes()]);
        assert_eq!(store.outcome, Some(ScriptOutcome::Killed), "{code}");
        // Between two ticks lie this many bytes, and some for what happens in one instruction.
        let most = store.interpreter.instructions_between_ticks_max();
        assert!(most <= 10, "{code}: {most} instructions");
    }
}

#[test]
fn long_strings_of_earlier_calls_count_for_functions() {
    let library = "#!lua name=keeper\nlocal a, b\n\
        redis.register_function('keep', function() a = ('x'):rep(1e7) b = a .. 'b' a = a .. 'a' end)\n\
        redis.register_function('use', function() while true do local c = a < b end end)";
    let mut store = Store::new(Memory::default());
    store.ask(&[b"FUNCTION", b"LOAD", library.as_bytes()]);
    store.ask(&[b"FCALL", b"keep", b"0"]);
    assert_eq!(store.eval("return 1"), ":1\\r\\n");
    store.host.kill_at = Some(store.host.ticks + 3);
    store.ask(&[b"FCALL", b"use", b"0"]);
    assert_eq!(store.outcome, Some(ScriptOutcome::Killed));
    let most = store.interpreter.instructions_between_ticks_max();
    assert!(most <= 10, "{most} instructions");
}

/// Instructions that copy much tick by what they allocate.
#[test]
fn instructions_that_copy_much_tick_more_often() {
    let codes = [
        "local s = ('x'):rep(1e7) while true do local t = s .. s end",
        "local s = ('x'):rep(1e7) while true do local t = s:sub(2) end",
        "local s = ('x'):rep(1e7) coroutine.wrap(function() while true do local t = s .. s end end)()",
        "local t = {} for i = 1, 1e6 do t[i] = i end for i = 1, 1e6 do t[i] = nil end \
         while true do next(t) end",
    ];
    for code in codes {
        let limits = limits(|limits| limits.tick_instructions = 100_000_000);
        assert_killed(code, limits);
    }
}

/// What a failed `resume` said of its coroutine is forgotten, though the coroutine may be gone.
#[test]
fn a_resume_that_fails_does_not_turn_ticks_off() {
    let preparations = [
        "pcall(coroutine.resume, 5)",
        "pcall(coroutine.wrap(function() coroutine.resume(5) end))",
        "xpcall(function() coroutine.resume() end, function() return 1 end)",
        "local c = coroutine.create(function(...) coroutine.yield(...) end) \
         local many = loadstring('return {' .. ('1,'):rep(900) .. '}')() \
         for i = 1, 300 do pcall(coroutine.resume, c, unpack(many)) end c = nil collectgarbage()",
        "pcall(string.gsub, 'x', 'x', function() coroutine.resume(5) end)",
    ];
    for preparation in preparations {
        let limits = limits(|limits| limits.tick_instructions = u32::MAX);
        let mut store = Store::with_limits(Memory::default(), limits);
        store.host.kill_at = Some(100);
        store.eval(format!("{preparation} for i = 1, 1e6 do local t = {{}} end return 'ended'"));
        assert_eq!(
            store.outcome,
            Some(ScriptOutcome::Killed),
            "{preparation} {}",
            store.host.ticks
        );
    }
}
