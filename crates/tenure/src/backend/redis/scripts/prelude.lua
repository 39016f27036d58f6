-- Shared by all scripts: reads how the resource stands, knows the store's life, builds answers.
-- KEYS: the leader key, its side record, then what the script needs.
-- ARGV: call number, caller, run id seen at connect, events channel ('shard ' before it: in a
-- cluster, for the nodes of its slot only), then what the script needs.
-- Order in every script: checks, lease write, side writes through `side`, which never raises.
local K, META = KEYS[1], KEYS[2]
local NUMBER, ME, SEEN_RUN, CHANNEL = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local QUARANTINE = '~quarantine'
local TOKEN_MAX = 9007199254740991 -- beyond it, numbers lose their last digits here
local TTL_MAX = 86400000 -- ms; longer leases are not ours
local YEAR = 31622400000000 -- µs
local SHOWN_MAX = 512 -- bytes of a foreign value that an answer carries
local REFUSED_MAX = 256 -- abandoned attempts remembered, one per instance
local REFUSED_KEPT = 3600000000 -- µs; longer than any request stays on its way

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2]) -- µs

local warnings = {}

local function warn(text)
  warnings[#warnings + 1] = string.sub(text, 1, 300)
end

local function text(number)
  return string.format('%.0f', number)
end

-- A whole number from 0 to TOKEN_MAX, or nil: others may write what they like.
local function number(value)
  if type(value) ~= 'string' or #value > 16 or not string.match(value, '^%d+$') then
    return nil
  end
  local parsed = tonumber(value)
  if parsed > TOKEN_MAX then
    return nil
  end
  return parsed
end

local function failed(reply)
  return type(reply) == 'table' and reply.err
end

-- A write that may fail without touching the lease.
local function side(what, ...)
  local reply = redis.pcall(...)
  if failed(reply) then
    warn(what .. ': ' .. reply.err)
    return nil
  end
  return reply
end

-- A write that the answer depends on: returns the error to answer with, or nil.
local function must(...)
  local reply = redis.pcall(...)
  if failed(reply) then
    return redis.error_reply(reply.err)
  end
  return nil
end

-- How the resource stands. `pttl` is -2 without the key, -1 without an expiry.
local holder, pttl, conflict, refusal = '', -2, nil, nil
local meta = {}
do
  pttl = redis.call('PTTL', K)
  if pttl ~= -2 then
    local value = redis.pcall('GETRANGE', K, 0, SHOWN_MAX)
    if not failed(value) then
      holder = value
    elseif string.find(value.err, 'WRONGTYPE', 1, true) then
      conflict = K .. ' is a ' .. redis.call('TYPE', K)['ok'] .. ', not a string'
    else
      refusal = redis.error_reply(value.err)
    end
  end
  local names = {
    'v', 'holder', 'token', 'attempt', 'granted_at', 'renewed_at', 'expires_at', 'max_ttl', 'open',
    'incarnation', 'quarantine_until', 'quarantine_why', 'quarantine_noted', 'paused_until', 'unrecorded', 'claim',
    'claim_to', 'claim_token', 'claim_from', 'claim_from_token', 'wish', 'wish_to', 'wish_by',
    'wish_token', 'wish_until', 'wish_refused', 'before', 'undone', 'unconfirmed',
    'refused:' .. ME,
  }
  local values = redis.pcall('HMGET', META, unpack(names))
  if not failed(values) then
    for index, name in ipairs(names) do
      meta[name] = values[index] or nil
    end
    if meta.v and meta.v ~= '1' then
      conflict = META .. ' has version ' .. string.sub(meta.v, 1, 20) .. ', this program knows 1'
    end
  elseif string.find(values.err, 'WRONGTYPE', 1, true) then
    conflict = conflict or META .. ' is a ' .. redis.call('TYPE', META)['ok'] .. ', not a hash'
  else
    refusal = refusal or redis.error_reply(values.err)
  end
end

-- The highest token known here; nil when there is none or it is no number.
local token = number(meta.token)
if meta.token and not token then
  warn('token in ' .. META .. ' is not a number below 2^53: taken as lost')
end
if token and token > now + YEAR then
  conflict = conflict or 'token in ' .. META .. ' is more than a year ahead of the store clock'
end

local max_ttl = number(meta.max_ttl) or 0
if max_ttl > TTL_MAX then
  warn('max_ttl in ' .. META .. ' exceeds a day: taken as a day')
  max_ttl = TTL_MAX
end

-- Longer than any lease that may still be believed in, in ms.
local function believed_for(ttl)
  return math.ceil(math.max(ttl, max_ttl) * 1.01) + 2
end

local function remaining(until_us)
  return math.max(0, math.ceil((until_us - now) / 1000))
end

local quarantine_until = number(meta.quarantine_until) or 0
if quarantine_until > now + (TTL_MAX * 1.01 + 1000) * 1000 then
  quarantine_until = now + believed_for(0) * 1000
  warn('quarantine in ' .. META .. ' exceeds a day: cut short')
end

-- Which life of the store this is: run id and replication id, or what our own store says.
local life = { run = SEEN_RUN, replication = '', failed_over = false, uptime = 0 }
do
  local server = redis.pcall('INFO', 'server')
  local replication = redis.pcall('INFO', 'replication')
  if failed(server) or failed(replication) then
    life.weak = true
    warn('INFO is not allowed in scripts: a failover on a running connection goes unnoticed')
  else
    -- Plain search, then one match at the place: patterns over the whole text cost more than all
    -- the rest of a renewal.
    local function field(info, name)
      local _, stop = string.find(info, name, 1, true)
      return stop and string.match(info, '^([%w._-]*)', stop + 1)
    end
    local own = field(server, '\ntenure_incarnation:')
    life.run = own or field(server, '\nrun_id:') or SEEN_RUN
    life.complete = field(server, '\ntenure_history:') == 'complete'
    life.uptime = tonumber(field(server, '\nuptime_in_seconds:') or '0') or 0
    if not own then
      life.replication = field(replication, '\nmaster_replid:') or ''
      life.failed_over = string.find(field(replication, '\nmaster_replid2:') or '', '[^0]') ~= nil
    end
  end
  life.text = life.run .. ':' .. life.replication
  -- Whoever cannot tell this life must not hide it from those who can.
  life.record = life.run == '' and (meta.incarnation or '') or life.text
end

-- Compares the recorded life with this one: nil when equal, else whether it asks for a quarantine.
local function life_changed()
  local run, replication = string.match(meta.incarnation or '', '^(.*):(%w*)$')
  if life.run == '' then
    return nil
  elseif run == nil then
    return { why = 'the life of the store in which the last term was granted is not recorded' }
  elseif run ~= life.run then
    return { why = 'the store restarted or failed over' }
  elseif life.weak or replication == life.replication then
    return nil
  elseif replication ~= '' and life.failed_over then
    return { why = 'the store failed over to a replica' }
  end
  return {}
end

-- Records a new life. Only acquire grants, so elsewhere a failing write is told and tried again.
local function settle_life(ttl)
  local change = token and not conflict and life_changed()
  if not change then
    return
  end
  if change.why then
    quarantine_until = now + believed_for(ttl) * 1000
    meta.quarantine_why = change.why
  end
  side('side record', 'HSET', META, 'incarnation', life.record, 'quarantine_until',
    text(quarantine_until), 'quarantine_why', meta.quarantine_why or '')
end

local function is_mine(term)
  return not conflict and pttl ~= -2 and holder == ME and meta.holder == ME and token == term
end

-- Whether the key waits for a successor that has not claimed it yet.
local function is_reserved()
  return pttl ~= -2 and (meta.claim or '') ~= '' and holder == meta.claim
    and meta.holder == meta.claim and meta.claim_token == meta.token
end

-- Whether the term waits for replicas, and its holder has not said yet that they have it. Such a
-- holder does not lead; nothing else depends on it.
local function is_unconfirmed()
  return meta.token ~= nil and meta.unconfirmed == meta.token
end

local function shown(value)
  return string.sub(value, 1, SHOWN_MAX)
end

local members = {}

local function wish_now()
  local stands_until = number(meta.wish_until) or 0
  if (meta.wish or '') == '' or meta.wish_token ~= meta.token or stands_until <= now then
    return {}
  end
  return {
    meta.wish, meta.wish_to or '', meta.wish_by or '', meta.wish_token, text(stands_until),
    meta.wish_refused or '',
  }
end

local function quarantine_why()
  if (meta.quarantine_why or '') == '' then
    return 'somebody else put the resource into quarantine'
  end
  return meta.quarantine_why
end

-- The answer: what came of the call, how the resource stands now, and what went wrong aside.
local function answer(kind, first, second)
  local known, foreign, unconfirmed, wish = 0, '0', '0', {}
  if pttl ~= -2 and not conflict then
    if token and holder == meta.holder then
      known = token
      unconfirmed = is_unconfirmed() and '1' or '0'
      wish = wish_now()
    elseif holder ~= QUARANTINE then
      foreign = '1'
    end
  end
  local view = {
    pttl == -2 and '0' or '1', shown(holder), text(pttl), text(known), foreign, text(now),
    life.text, text(remaining(number(meta.paused_until) or 0)), is_reserved() and '1' or '0',
    unconfirmed, pttl ~= -2 and holder == QUARANTINE and quarantine_why() or '',
  }
  return { NUMBER, kind, { first or '', second or '' }, view, wish, warnings, members }
end

local function lost()
  if conflict then
    return answer('lost', 'overwritten', conflict)
  elseif pttl == -2 then
    return answer('lost', 'vanished')
  elseif holder ~= ME then
    return answer('lost', 'held', shown(holder))
  elseif meta.holder ~= ME or not token then
    return answer('lost', 'overwritten', META .. ' does not name the holder of ' .. K)
  end
  return answer('lost', 'other', text(token))
end

-- Hints only save waiting: without them elections go by their timers.
local function publish(message)
  local shard = string.match(CHANNEL, '^shard (.*)$')
  local command, reply = shard and 'SPUBLISH' or 'PUBLISH', nil
  reply = redis.pcall(command, shard or CHANNEL, message)
  if shard and failed(reply) and string.find(reply.err, 'nknown Redis command', 1, true) then
    -- Before 7.0 there are no shards to publish in.
    command = 'PUBLISH'
    reply = redis.pcall(command, shard, message)
  end
  if failed(reply) then
    warn('hints: this login may not ' .. command .. ' to ' .. (shard or CHANNEL) ..
      ', so others hear late of what changes here; grant +' .. string.lower(command) ..
      ' and its channels (docs/acl.md): ' .. reply.err)
  end
end

-- The words that make META refuse `attempt` and all earlier ones of the caller from now on.
local function refused_field(attempt)
  local before = tonumber(string.match(meta['refused:' .. ME] or '', '^(%d+) ') or '0')
  return 'refused:' .. ME, text(math.max(before, attempt)) .. ' ' .. text(now)
end

local function is_refused(attempt)
  local highest = tonumber(string.match(meta['refused:' .. ME] or '', '^(%d+) ') or '-1')
  return attempt <= highest
end

-- Forgets refused attempts that are too old to arrive, and the oldest beyond the bound.
local function forget_refused()
  if (side('side record', 'HLEN', META) or 0) <= REFUSED_MAX + 32 then
    return
  end
  local all, kept, gone = side('side record', 'HGETALL', META) or {}, {}, {}
  for index = 1, #all, 2 do
    if string.sub(all[index], 1, 8) == 'refused:' then
      local at = tonumber(string.match(all[index + 1], ' (%d+)$') or '0')
      kept[#kept + 1] = { at = at, field = all[index] }
    end
  end
  table.sort(kept, function(a, b) return a.at > b.at end)
  for index, entry in ipairs(kept) do
    if (index > REFUSED_MAX / 2 or entry.at < now - REFUSED_KEPT) and #gone < 1000 then
      gone[#gone + 1] = entry.field
    end
  end
  if #gone > 0 then
    side('side record', 'HDEL', META, unpack(gone))
  end
end

if refusal then
  return refusal
end
