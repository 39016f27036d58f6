-- Ticks: each runs once across the fleet. Numbered ones share a hash, named ones have a key each.
-- KEYS: the tick's key. ARGV: tick number, or '' for a named one.
local TICKS, TICK = KEYS[3], ARGV[6]
local BEGUN_MAX = 64 -- numbered ticks begun and not finished
local BEGUN_KEPT = '604800000' -- ms that a named tick may run
local RECORDED_MAX = 1100 -- bytes of an outcome that are looked at
local FIELDS_MAX = 1024 -- beyond it others wrote there: looking through all would take too long
local tick_number = number(TICK)

-- What is recorded: '', 'begun TOKEN ID', 'ok', or 'failed WORDS'; nil and an error otherwise.
local function tick_read()
  if not tick_number then
    local value = redis.pcall('GETRANGE', TICKS, 0, RECORDED_MAX)
    if failed(value) then
      return nil, value.err
    end
    return value
  end
  local values = redis.pcall('HMGET', TICKS, 'done', 'outcome', 'begun:' .. TICK)
  if failed(values) then
    return nil, values.err
  end
  local done = number(values[1])
  if done and tick_number == done then
    return string.sub(values[2] or 'ok', 1, RECORDED_MAX)
  elseif done and tick_number < done then
    return 'ok'
  end
  return string.sub(values[3] or '', 1, RECORDED_MAX)
end

local function tick_fault(fault)
  if string.find(fault, 'WRONGTYPE', 1, true) then
    return answer('conflict', TICKS .. ' holds something else')
  end
  return redis.error_reply(fault)
end

local function tick_answer(recorded)
  local term, by = string.match(recorded, '^begun (%d+) (.*)$')
  if number(term) then
    return answer('tick-unfinished', shown(by), term)
  elseif recorded == 'ok' then
    return answer('tick-done', 'ok')
  end
  return answer('tick-done', 'failed', shown(string.match(recorded, '^failed (.*)$') or recorded))
end

-- Begun numbers up to `done` are settled; of others that nobody finished the lowest go first.
local function tick_prune(done)
  local count = side('ticks', 'HLEN', TICKS) or 0
  if count > FIELDS_MAX then
    warn(TICKS .. ' has ' .. text(count) .. ' fields: nothing in it is forgotten')
    return
  end
  local fields, begun, gone = side('ticks', 'HKEYS', TICKS) or {}, {}, {}
  for _, field in ipairs(fields) do
    local begun_number = number(string.match(field, '^begun:(%d+)$'))
    if begun_number then
      begun[#begun + 1] = begun_number
    end
  end
  table.sort(begun)
  for index, begun_number in ipairs(begun) do
    if begun_number <= done or index <= #begun - BEGUN_MAX then
      gone[#gone + 1] = 'begun:' .. text(begun_number)
    end
  end
  if #gone > 0 then
    side('ticks', 'HDEL', TICKS, unpack(gone))
  end
end
