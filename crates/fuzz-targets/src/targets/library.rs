//! Every library function of scripts, called with what is meant to keep it busy: none may work for
//! long without a tick, and none may survive a kill. One that never ends is the driver's to notice.

use std::time::Duration;

use store_script::{
    AclAnswer, Host, Interpreter, Invocation, Limits, LogLevel, Origin, Protocol, Replication,
    ScriptOutcome, Tick,
};

use super::Target;
use crate::clock::thread_time;

pub(super) const TARGET: Target = Target {
    name: "library",
    about: "calls of Lua's library functions; each byte chooses a function or an argument",
    run,
    words: &[
        b"\x00\x00",
        b"\x01\x01\x01",
        b".-.-.-b",
        b"[%w",
        b"%b()",
        b"%f[",
        b"(a*)",
        b"%99.99f",
    ],
};

/// Walks all functions in the order of their names; `ARGV[1]` chooses the calls, `ARGV[2]` is
/// itself an argument.
const DRIVER: &str = r"
local functions, names = {}, {}
local function gather(prefix, library)
  for name, value in pairs(library) do
    if type(name) == 'string' and type(value) == 'function' then
      names[#names + 1] = prefix .. name
      functions[prefix .. name] = value
    end
  end
end
gather('', _G)
for _, library in ipairs({'string', 'table', 'math', 'cjson', 'cmsgpack', 'struct', 'bit',
    'coroutine', 'redis'}) do
  gather(library .. '.', _G[library])
end
table.sort(names)
local at = 0
local function choose(count)
  at = at + 1
  return (ARGV[1]:byte(at) or 0) % count + 1
end
local function many(count, value)
  local list = {}
  for i = 1, count do list[i] = value or i % 7 end
  return list
end
local function nested(depth)
  local t = {}
  for i = 1, depth do t = {t, t} end
  return t
end
-- All keys will have the same place when there is room for twice as many.
local function spread(log)
  local t, size, room = {}, 2 ^ log, 2 ^ (log + 1) - 1
  local sums = math.floor(2 ^ 32 / room)
  for i = 0, size - 1 do
    local n, sum = math.floor(i / sums), room * (i % sums)
    t[1 + (n * 2 ^ 32 + (sum - 0x3ff00000 - n) % 2 ^ 32) / 2 ^ 52] = i
  end
  return t
end
local makers = {
  function() return ARGV[2] end,
  function() return ('a'):rep(2000) end,
  function() return ('a'):rep(1e6) end,
  function() return '.-.-.-.-b' end,
  function() return '(a*)(a*)(a*)b' end,
  function() return ('a?'):rep(30) .. ('a'):rep(30) end,
  function() return '[' .. ('b'):rep(1e5) .. ']' end,
  function() return ('('):rep(1e5) end,
  function() return '%b()' end,
  function() return ('%s'):rep(1000) end,
  function() return ('x'):rep(1e5) end,
  function() return '[' .. ('[],'):rep(1e4) .. '1]' end,
  function() return '\221\0\1\0\0' .. ('\1'):rep(65536) end,
  function() return ('1+'):rep(1e4) .. '1' end,
  function() return many(1e5) end,
  function() return many(1e5, '') end,
  function() return many(20, ('y'):rep(1e5)) end,
  function() return nested(18) end,
  function() local t = {} t[1] = t t.a = t return t end,
  function() return setmetatable({}, {__index = function(t, k) return t end}) end,
  function() return setmetatable({}, {__lt = function() return true end}) end,
  function() return function() return true end end,
  function() return function(a, b) return tostring(a) < tostring(b) end end,
  function() return function() while true do end end end,
  function() return function() error({err = 'thrown'}) end end,
  function() return type end,
  function() return string.rep end,
  function() return coroutine.create(function() while true do coroutine.yield(1) end end) end,
  function() return -2147483648 end,
  function() return 2147483647 end,
  function() return 1e300 end,
  function() return 0/0 end,
  function() return -1 end,
  function() return 0 end,
  function() return 1 end,
  function() return 3 end,
  function() return 1e6 end,
  function() return nil end,
  function() return true end,
  function() return false end,
  function() return cjson.null end,
  function() return 'GET' end,
  function() return spread(15) end,
}
-- Which makers suit what a function expects: half of the calls are meant to get far.
local suited = {
  t = {1, 2, 3, 6, 8, 10, 11}, p = {1, 4, 5, 6, 7, 8, 9}, n = {29, 30, 31, 33, 34, 35, 36, 37},
  l = {15, 16, 17, 18, 19, 43}, c = {43}, f = {22, 23, 24, 25, 26}, j = {1, 12, 13, 14}, r = {1, 11, 20, 22, 26},
}
local typed = {
  {'string.find', 'tp'}, {'string.find', 'tpn'}, {'string.match', 'tp'}, {'string.gmatch', 'tp'},
  {'string.gsub', 'tpr'}, {'string.rep', 'tn'}, {'string.format', 'ttt'}, {'table.sort', 'lf'},
  {'table.sort', 'l'}, {'table.concat', 'lt'}, {'table.insert', 'lnt'}, {'table.remove', 'ln'},
  {'table.foreach', 'lf'}, {'cjson.encode', 'l'}, {'cjson.decode', 'j'}, {'cmsgpack.pack', 'l'},
  {'cmsgpack.unpack', 'j'}, {'struct.unpack', 'tt'}, {'loadstring', 'j'}, {'load', 'f'},
  {'redis.sha1hex', 't'}, {'string.upper', 't'}, {'unpack', 'lnn'}, {'next', 'l'},
  {'rawset', 'ctt'},
}
local function call(name, ...)
  local ok, result = pcall(functions[name], ...)
  if ok and type(result) == 'function' then pcall(result) end
end
while at < #ARGV[1] do
  local arguments, count = {}, 0
  if choose(2) == 1 then
    local name, kinds = unpack(typed[choose(#typed)])
    count = #kinds
    for i = 1, count do
      local makers_of = suited[kinds:sub(i, i)]
      arguments[i] = makers[makers_of[choose(#makers_of)]]()
    end
    call(name, unpack(arguments, 1, count))
  else
    local name = names[choose(#names)]
    count = choose(5) - 1
    for i = 1, count do arguments[i] = makers[choose(#makers)]() end
    call(name, unpack(arguments, 1, count))
  end
end
return #names
";

/// What one run may use. Small, so that an input is soon over.
const MEMORY_MAX: usize = 16 << 20;
/// Ticks after which a run is killed, so that an input is over in time.
const TICKS_MAX: u32 = 1500;
/// Work between two ticks besides the usual: what one copy of all memory costs.
const WORK_SLACK: u64 = MEMORY_MAX as u64 / 4;
/// Processor time between two ticks. A tick comes after about a millisecond; a debug build is
/// many times slower, and what is looked for takes minutes.
const TIME_MAX: Duration = Duration::from_millis(if cfg!(debug_assertions) { 3000 } else { 300 });

fn run(bytes: &[u8]) {
    let mut limits = Limits::default();
    limits.memory_max = MEMORY_MAX;
    limits.reply_max = MEMORY_MAX;
    let work_max = limits.tick_work + WORK_SLACK;
    let mut interpreter = Interpreter::new(limits);
    let digest = interpreter.load_script(DRIVER.as_bytes(), Origin::Evaluated);
    let digest = digest.expect("the driver is a script");
    let arguments: [&[u8]; 2] = [bytes, bytes];
    let invocation = Invocation { keys: &[], arguments: &arguments, protocol: Protocol::Resp2 };
    let (mut host, mut reply) = (Watching::start(), Vec::new());
    let outcome = interpreter.run_script(&digest, invocation, &mut host, &mut reply);
    host.look();
    assert!(host.slowest <= TIME_MAX, "{:?} passed without a tick", host.slowest);
    let work = interpreter.work_between_ticks_max();
    assert!(work <= work_max, "{work} units of work were done without a tick");
    if host.ticks > TICKS_MAX {
        assert_eq!(outcome, Some(ScriptOutcome::Killed), "a killed script went on");
        assert_eq!(host.ticks, TICKS_MAX + 1, "a killed script was asked again");
    }
    assert!(!reply.is_empty(), "nothing was answered");
}

/// A server that looks at its watch at every tick.
struct Watching {
    ticks: u32,
    seen_at: Duration,
    slowest: Duration,
}

impl Watching {
    fn start() -> Self {
        Self { ticks: 0, seen_at: thread_time(), slowest: Duration::ZERO }
    }

    fn look(&mut self) {
        let now = thread_time();
        self.slowest = self.slowest.max(now.saturating_sub(self.seen_at));
        self.seen_at = now;
    }
}

impl Host for Watching {
    fn call(&mut self, _: &[&[u8]], _: Protocol, reply: &mut Vec<u8>) {
        reply.extend_from_slice(b"-ERR refused\r\n");
    }

    fn acl_check(&mut self, _: &[&[u8]]) -> AclAnswer {
        AclAnswer::Denied
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&mut self, _: Replication) {}

    fn tick(&mut self) -> Tick {
        self.look();
        self.ticks += 1;
        if self.ticks > TICKS_MAX { Tick::Kill } else { Tick::Continue }
    }
}
