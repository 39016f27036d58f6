-- Ticks: each runs once across the fleet. Named ones have a key each. Numbered ones share a hash, in
-- which every series has a field: the plain numbers (period 0), or the periods of one length.
-- KEYS: the tick's key. ARGV: 'NUMBER@PERIOD' with the period in µs, or '' for a named one.
-- series:PERIOD holds lines of 'NUMBER RECORD'. Earlier versions know only `done`, `outcome` and
-- begun:NUMBER, shared by all periods: `done` is written along for them, `done_of` says for which
-- series, and what such a version wrote last is read.
local TICKS = KEYS[3]
local ENTRIES_MAX = 64 -- ticks remembered in one series
local SERIES_MAX = 128 -- series remembered, as long as some of them are over
local SERIES_LEN_MAX = 262144 -- bytes of a series that are read; ours are far shorter
local WORDS_MAX = 2048 -- bytes of a recorded failure that are told
local SERIES_KEPT = 86400000000 -- µs that a series is kept after its last tick
local SCANNED_MAX = 4096 -- fields that are looked through for series that are over
local BEGUN_KEPT = '604800000' -- ms that a named tick may run
local tick_number, tick_period = string.match(ARGV[6], '^(%d+)@(%d+)$')
tick_number, tick_period = number(tick_number), number(tick_period)
local SERIES = 'series:' .. text(tick_period or 0)
local entries, old_done = {}, nil

local function is_begun(record)
  return string.sub(record, 1, 6) == 'begun '
end

-- Whether a number's period has begun. A store whose clock was ahead for a moment has later ones
-- on record: they are done, but they say nothing about those before them.
local function is_present(some_number)
  return some_number * tick_period <= now
end

local function series_read(lines)
  for line in string.gmatch(lines, '[^\n]+') do
    local digits, record = string.match(line, '^(%d+) (.+)$')
    local entry_number = number(digits)
    if entry_number and #entries <= ENTRIES_MAX then
      entries[#entries + 1] = { number = entry_number, record = record }
    end
  end
end

-- What this series has on record: '' for nothing.
local function series_find()
  local begun, is_passed = '', false
  for _, entry in ipairs(entries) do
    if entry.number == tick_number and not is_begun(entry.record) then
      return entry.record
    elseif entry.number == tick_number then
      begun = entry.record
    elseif entry.number > tick_number and not is_begun(entry.record) then
      is_passed = is_passed or is_present(entry.number)
    end
  end
  return is_passed and 'ok' or begun
end

-- What is recorded: '', 'begun TOKEN ID', 'ok', or 'failed WORDS'; nil and an error otherwise.
local function tick_read()
  if not tick_number then
    local value = redis.pcall('GETRANGE', TICKS, 0, WORDS_MAX)
    if failed(value) then
      return nil, value.err
    end
    return value
  end
  local values = redis.pcall('HMGET', TICKS, SERIES, 'done', 'outcome', 'done_of',
    'begun:' .. text(tick_number))
  if failed(values) then
    return nil, values.err
  end
  series_read(string.sub(values[1] or '', 1, SERIES_LEN_MAX))
  old_done = number(values[2])
  local found = series_find()
  if found ~= '' and not is_begun(found) then
    return found
  end
  local is_of_old = old_done and string.match(values[4] or '', '^(%d+)@') ~= values[2]
  if is_of_old and old_done == tick_number then
    return values[3] or 'ok'
  elseif is_of_old and old_done > tick_number and is_present(old_done) then
    return 'ok'
  end
  return found ~= '' and found or values[5] or ''
end

-- Of entries that a later one settles, and beyond the bound, those go that are missed least.
local function series_prune()
  local settled, kept = -1, {}
  for _, entry in ipairs(entries) do
    if not is_begun(entry.record) and is_present(entry.number) then
      settled = math.max(settled, entry.number)
    end
  end
  for _, entry in ipairs(entries) do
    if entry.number >= settled then
      kept[#kept + 1] = entry
    end
  end
  table.sort(kept, function(a, b) return a.number < b.number end)
  while #kept > ENTRIES_MAX do
    local gone = #kept
    for index = #kept, 1, -1 do
      if is_begun(kept[index].record) then
        gone = index
      end
    end
    table.remove(kept, gone)
  end
  entries = kept
end

-- Series whose last tick is long over: nobody asks for them again. Those who wait for the outcome of
-- a tick, or came late with it, ask within a day.
local function forget_series()
  local count = side('ticks', 'HLEN', TICKS) or 0
  if count <= SERIES_MAX or count > SCANNED_MAX then
    return
  end
  local all, gone = side('ticks', 'HGETALL', TICKS) or {}, {}
  for index = 1, #all, 2 do
    local period = number(string.match(all[index], '^series:(%d+)$'))
    local latest = -1
    for digits in string.gmatch('\n' .. all[index + 1], '\n(%d+) ') do
      latest = math.max(latest, number(digits) or 0)
    end
    -- Due times (in µs, period 1) may be a month apart, and asked for until the next one.
    local is_over = period and period > 1 and (latest + 1) * period + SERIES_KEPT <= now
    if is_over and all[index] ~= SERIES and #gone < 1000 then
      gone[#gone + 1] = all[index]
    end
  end
  if #gone > 0 then
    side('ticks', 'HDEL', TICKS, unpack(gone))
  end
end

-- Records `record` for the numbered tick, or nothing where it is nil. Writes in any case: replicas
-- confirm only what was written. Returns the error to answer with, or nil.
local function tick_write(record)
  local others = {}
  for _, entry in ipairs(entries) do
    if entry.number ~= tick_number then
      others[#others + 1] = entry
    end
  end
  if record then
    others[#others + 1] = { number = tick_number, record = record }
  end
  entries = others
  series_prune()
  local lines = {}
  for _, entry in ipairs(entries) do
    lines[#lines + 1] = text(entry.number) .. ' ' .. entry.record
  end
  local words = { SERIES, table.concat(lines, '\n') }
  if record and not is_begun(record) and (old_done or -1) <= tick_number then
    for _, word in ipairs({ 'done', text(tick_number), 'outcome', record,
        'done_of', text(tick_number) .. '@' .. text(tick_period) }) do
      words[#words + 1] = word
    end
  end
  local fault = must('HSET', TICKS, unpack(words))
  if not fault then
    forget_series()
  end
  return fault
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
  local words = string.sub(recorded, 1, WORDS_MAX)
  return answer('tick-done', 'failed', string.match(words, '^failed (.*)$') or words)
end
