-- The members: who beats, since when it is ready, and what it told about itself.
local BEATS, RECORDS = KEYS[4], KEYS[5]
local LISTED_MAX = 1024
local KEPT_MAX = 4096
local PRUNED_AT_ONCE = 64
local RECORD_MAX = 32768 -- bytes; ours are shorter
local LISTED_BYTES_MAX = 8388608 -- of records in one answer
local now_ms = math.floor(now / 1000)

local function strike(ids)
  if #ids > 0 then
    side('members', 'ZREM', BEATS, unpack(ids))
    side('members', 'HDEL', RECORDS, unpack(ids))
  end
end

-- Removes members that have long been silent, came from the future or exceed the bound. The holder
-- beats by renewing, so its own entry may be old.
local function prune(ttl)
  local silent_ms = 10 * math.max(ttl, max_ttl)
  local old = side('members', 'ZRANGEBYSCORE', BEATS, '-inf', text(now_ms - silent_ms), 'LIMIT', '0',
    text(PRUNED_AT_ONCE)) or {}
  local gone = {}
  for _, id in ipairs(old) do
    if pttl == -2 or id ~= holder then
      gone[#gone + 1] = id
    end
  end
  strike(gone)
  side('members', 'ZREMRANGEBYSCORE', BEATS, text(now_ms + 60000), '+inf')
  local surplus = (side('members', 'ZCARD', BEATS) or 0) - KEPT_MAX
  if surplus > 0 then
    strike(side('members', 'ZRANGE', BEATS, '0', text(math.min(surplus, PRUNED_AT_ONCE) - 1)) or {})
  end
  -- Records without a beat cannot be found one by one; all living members write theirs again.
  if (side('members', 'HLEN', RECORDS) or 0) > 2 * KEPT_MAX then
    side('members', 'DEL', RECORDS)
  end
end

local function beat(record, ready, ttl)
  local before = side('members', 'HGET', RECORDS, ME) or ''
  local last = tonumber(side('members', 'ZSCORE', BEATS, ME) or '0') or 0
  local since = 0
  if ready == '1' then
    since = number(string.match(before, '^(%d+) ')) or 0
    local holds = pttl ~= -2 and holder == ME
    if since == 0 or since > now or (now_ms - last > 3 * ttl and not holds) then
      since = now
    end
  end
  local told = text(since) .. ' ' .. record
  side('members', 'ZADD', BEATS, text(now_ms), ME)
  if told ~= before and side('members', 'HSET', RECORDS, ME, told) then
    publish('m')
  end
  prune(ttl)
end

-- One member as answers tell of it, or nil where it cannot be one of ours.
local function listed(id, beat, record, renewed_at)
  local at = tonumber(beat) or 0
  if #id > SHOWN_MAX or at < 0 then
    return nil
  end
  if pttl ~= -2 and id == holder and id == meta.holder then
    at = math.max(at, renewed_at)
  end
  return { id, text(math.min(at, now_ms)), record or '' }
end

local function list_members()
  local scored = side('members', 'ZREVRANGEBYSCORE', BEATS, '+inf', '-inf', 'WITHSCORES', 'LIMIT',
    '0', text(LISTED_MAX)) or {}
  local renewed_at = math.floor((number(meta.renewed_at) or 0) / 1000)
  local bytes, unreadable = 0, 0
  for first = 1, #scored, 512 do
    local ids = {}
    for index = first, math.min(first + 511, #scored), 2 do
      ids[#ids + 1] = scored[index]
    end
    local records = side('members', 'HMGET', RECORDS, unpack(ids)) or {}
    for index, id in ipairs(ids) do
      local record = records[index] or ''
      local member = listed(id, scored[first + 2 * index - 1], record, renewed_at)
      if not member or #record > RECORD_MAX or bytes + #record > LISTED_BYTES_MAX then
        unreadable = unreadable + 1
      else
        bytes = bytes + #record
        members[#members + 1] = member
      end
    end
  end
  if unreadable > 0 then
    warn(text(unreadable) .. ' entries of ' .. BEATS .. ' cannot be ours: left out')
  end
end
