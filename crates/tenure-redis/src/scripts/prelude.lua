-- Shared by all scripts: reads how the resource stands, knows the store's life, builds answers.
-- KEYS: the leader key, its side record, then what the script needs.
-- ARGV: call number, caller, run id seen at connect, events channel ('shard ' before it: in a
-- cluster, for the nodes of its slot only), the longest lease that the caller knows of in ms, then
-- what the script needs.
-- Order in every script: checks, lease write, side writes through `side`, which never raises.
local K, META = KEYS[1], KEYS[2]
local NUMBER, ME, SEEN_RUN, CHANNEL = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local QUARANTINE = '~quarantine'
local TOKEN_MAX = 9007199254740991 -- beyond it, numbers lose their last digits here
local TTL_MAX = 86400000 -- ms; longer leases are not ours
local PAUSE_MAX = 31622400000 -- ms; no pause lasts longer
local YEAR = 31622400000000 -- µs
local SHOWN_MAX = 512 -- bytes of a foreign value that an answer carries
local FIELD_MAX = 1024 -- bytes of a field of the side record that are looked at
local REFUSED_MAX = 128 -- abandoned attempts remembered, one per instance
local REFUSED_LEN_MAX = 32768 -- bytes that they take at the most
local REFUSED_KEPT = 3600000000 -- µs; longer than any request stays on its way
local LONGEST = math.min(tonumber(ARGV[5]) or 0, TTL_MAX)

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

-- How the resource stands. `pttl` is -2 without the key, -1 without an expiry. `conflict` says what
-- stands at one of the keys and is not ours to touch.
local holder, pttl, conflict, refusal = '', -2, nil, nil
local key_is_foreign, record_is_foreign = false, false
local meta = {}
do
  pttl = redis.call('PTTL', K)
  if pttl ~= -2 then
    local value = redis.pcall('GETRANGE', K, 0, SHOWN_MAX)
    if not failed(value) then
      holder = value
    elseif string.find(value.err, 'WRONGTYPE', 1, true) then
      key_is_foreign = true
      conflict = K .. ' is a ' .. redis.call('TYPE', K)['ok'] .. ', not a string'
    else
      refusal = redis.error_reply(value.err)
    end
  end
  local names = {
    'v', 'holder', 'token', 'attempt', 'granted_at', 'renewed_at', 'expires_at', 'max_ttl', 'open',
    'incarnation', 'quarantine_until', 'quarantine_from', 'quarantine_why', 'quarantine_noted',
    'quarantine_covers', 'paused_until', 'paused_from', 'unrecorded', 'claim', 'claim_to',
    'claim_token', 'claim_from', 'claim_from_token', 'wish', 'wish_to', 'wish_by', 'wish_token',
    'wish_until', 'wish_refused', 'before', 'before_lease', 'undone', 'unconfirmed', 'grant', 'refused',
  }
  local values = redis.pcall('HMGET', META, unpack(names))
  if not failed(values) then
    for index, name in ipairs(names) do
      local value, len_max = values[index], name == 'refused' and REFUSED_LEN_MAX or FIELD_MAX
      meta[name] = value and string.sub(value, 1, len_max) or nil
    end
    record_is_foreign = meta.v ~= nil and meta.v ~= '1'
    if record_is_foreign then
      conflict = conflict or META .. ' has version ' .. string.sub(meta.v, 1, 20) ..
        ', this program knows 1'
    end
  elseif string.find(values.err, 'WRONGTYPE', 1, true) then
    record_is_foreign = true
    conflict = conflict or META .. ' is a ' .. redis.call('TYPE', META)['ok'] .. ', not a hash'
  else
    refusal = refusal or redis.error_reply(values.err)
  end
  if record_is_foreign then
    meta = {} -- nothing of it is ours to read
  end
end

-- The highest token known here; nil when there is none or it is no number.
local token = number(meta.token)
if meta.token and not token then
  warn('token in ' .. META .. ' is not a number below 2^53: taken as lost')
end

local max_ttl = number(meta.max_ttl) or 0
if max_ttl > TTL_MAX then
  warn('max_ttl in ' .. META .. ' exceeds a day: taken as a day')
  max_ttl = TTL_MAX
end

-- Longer than any lease that may still be believed in, in ms.
local function believed_for(ttl)
  return math.ceil(math.max(ttl, max_ttl, LONGEST) * 101 / 100) + 2
end

local function remaining(until_us)
  return math.max(0, math.ceil((until_us - now) / 1000))
end

-- A stored moment in the future, when it was stored, and whether both must be written again. The
-- second is known only where it names the first. Where the store's clock stepped back since then,
-- what was to last so long lasts that long from now on: nobody waits for as long as it stepped.
local function stored(name, lasts_max, cut_to)
  local ends = number(meta[name .. '_until']) or 0
  local from, noted = string.match(meta[name .. '_from'] or '', '^(%d+) (%d+)$')
  from = noted and noted == meta[name .. '_until'] and number(from) or nil
  local is_moved = from ~= nil and from > now
  if is_moved then
    ends, from = now + math.max(0, ends - from), now
  end
  if ends > now + lasts_max * 1000 then
    warn(name .. '_until in ' .. META .. ' is too far ahead: cut short')
    ends, from, is_moved = now + cut_to * 1000, now, true
  end
  return ends, from, is_moved
end

local quarantine_until, quarantine_from, quarantine_is_new =
  stored('quarantine', TTL_MAX * 101 / 100 + 1000, believed_for(0))
-- Whether history tells of it.
local quarantine_is_noted = meta.quarantine_noted == meta.quarantine_until
-- The highest token, lost here and seen by somebody who waited, that it was begun for or ran with.
-- Known only where the field names this quarantine; tokens of the far future are not ours.
local quarantine_covers = 0
do
  local covered, noted = string.match(meta.quarantine_covers or '', '^(%d+) (%d+)$')
  covered = number(covered) or 0
  if noted == meta.quarantine_until and (number(noted) or 0) > 0 and covered <= now + YEAR then
    quarantine_covers = covered
  end
end
local paused_until, paused_from, pause_is_new = stored('paused', PAUSE_MAX, PAUSE_MAX)

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
    life.is_replica = (field(replication, '\nrole:') or 'master') ~= 'master'
    life.complete = field(server, '\ntenure_history:') == 'complete'
    -- The process of a promoted replica may be older than any lease that it never heard of, and
    -- of one that never followed its primary nothing else tells. Our own store tells how long it
    -- has been what it is.
    local age = field(server, '\ntenure_incarnation_seconds:')
    age = age or field(server, '\nuptime_in_seconds:')
    life.uptime = tonumber(age or '0') or 0
    life.failed_over = string.find(field(replication, '\nmaster_replid2:') or '', '[^0]') ~= nil
    if not own then
      life.replication = field(replication, '\nmaster_replid:') or ''
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

-- Nobody is granted a term for `lasts` ms from now on. Never shortens what runs.
local function begin_quarantine(lasts, why)
  quarantine_until, quarantine_from = math.max(quarantine_until, now + lasts * 1000), now
  quarantine_is_new, quarantine_is_noted, quarantine_covers = true, false, 0
  meta.quarantine_why = why
end

-- Compares the recorded life with this one, for a caller that knows of leases of `ttl`. A
-- quarantine that runs must cover those, too: it is lengthened to what it would have been had this
-- caller begun it. Where it is not known when that was, now is taken.
local life_is_new = false
local function judge_life(ttl)
  local change = token and not conflict and life_changed() or nil
  life_is_new = change ~= nil
  if change and change.why then
    begin_quarantine(believed_for(ttl), change.why)
  elseif not conflict and quarantine_until > now then
    if not quarantine_from and math.max(ttl, LONGEST) > max_ttl then
      quarantine_from = now
    end
    local ends = (quarantine_from or 0) + believed_for(ttl) * 1000
    if ends > quarantine_until then
      quarantine_until, quarantine_is_new = ends, true
    end
  end
end

-- What the side record shall say about a quarantine.
local function quarantine_fields()
  return 'quarantine_until', text(quarantine_until), 'quarantine_from',
    text(quarantine_from or now) .. ' ' .. text(quarantine_until), 'quarantine_noted',
    quarantine_is_noted and text(quarantine_until) or '', 'quarantine_why',
    meta.quarantine_why or '', 'quarantine_covers',
    quarantine_covers > 0 and text(quarantine_covers) .. ' ' .. text(quarantine_until) or ''
end

-- A lease renewed in the future: the clock stepped back since then, and a holder that crashed would
-- keep everybody waiting for as long as that step was. One that lives renews in time. For those that
-- wait: renewing and releasing never touch the term of another.
local function shorten_stale_lease(ttl)
  local longest = believed_for(ttl)
  local is_stale = token and holder == meta.holder and (number(meta.renewed_at) or 0) > now
  if pttl <= longest or holder == ME or not is_stale then
    return
  end
  warn('the clock of the store stepped back: ' .. K .. ' ends in ' .. text(longest) ..
    ' ms unless its holder renews')
  if side('lease', 'PEXPIRE', K, text(longest)) then
    pttl = longest
  end
  meta.renewed_at, meta.expires_at = text(now), text(now + longest * 1000)
  side('side record', 'HSET', META, 'renewed_at', meta.renewed_at, 'expires_at', meta.expires_at)
end

-- Writes down what `judge_life` found. Only acquire grants, so a failing write is told and tried
-- again by the next call.
local function save_life()
  if conflict then
    return
  end
  if life_is_new then
    side('side record', 'HSET', META, 'incarnation', life.record, quarantine_fields())
  elseif quarantine_is_new then
    side('side record', 'HSET', META, quarantine_fields())
  end
  if quarantine_is_new and pttl ~= -2 and holder == QUARANTINE then
    local left = remaining(quarantine_until)
    if pttl >= 0 and pttl < left and side('quarantine', 'PEXPIRE', K, text(left)) then
      pttl = left
    end
  end
  if pause_is_new then
    side('side record', 'HSET', META, 'paused_until', text(paused_until), 'paused_from',
      text(paused_from) .. ' ' .. text(paused_until))
  end
  life_is_new, quarantine_is_new, pause_is_new = false, false, false
end

-- Every script that writes does this, with the longest lease that it is asked for.
local function settle_life(ttl)
  judge_life(ttl)
  save_life()
end

-- What the side record says twice of the term that was granted last, so that one field that somebody
-- else changed does not end it.
local function grant_note(term)
  return text(term) .. ' ' .. ME
end

-- Whether the key waits for a successor that has not claimed it yet.
local function is_reserved()
  return pttl ~= -2 and (meta.claim or '') ~= '' and holder == meta.claim
    and meta.holder == meta.claim and meta.claim_token == meta.token
end

-- Whether the side record says that this term is the caller's, and the key does, too.
local function names_me(term)
  return not conflict and pttl ~= -2 and holder == ME and meta.holder == ME
    and token ~= nil and token == term
end

-- Whether the caller holds exactly this term, for those that end it: the key says so, and the side
-- record in one of its two places, or it was deleted.
local function is_surely_mine(term)
  if conflict or pttl == -2 or holder ~= ME then
    return false
  end
  local is_noted = meta.grant == grant_note(term) and not is_reserved()
  return names_me(term) or is_noted or (not token and not meta.grant)
end

-- Whether the caller holds this term, for those that go on with it. The key is the lease: while it
-- names the caller, a side record that contradicts itself does not end a term. Only one that tells of
-- another term in every place does.
local function is_mine(term)
  if conflict or pttl == -2 or holder ~= ME or is_reserved() then
    return is_surely_mine(term)
  end
  local tells_of_another = token and token ~= term and meta.holder == ME
    and meta.grant == grant_note(token)
  return not tells_of_another
end

-- Whether the key names the caller, whatever became of the side record.
local function holds_key()
  return pttl ~= -2 and holder == ME
end

-- Puts the side record of a term that goes on right.
local function mend(term)
  if names_me(term) and meta.grant == grant_note(term) then
    return
  end
  warn(META .. ' was changed by somebody else: it names the holder of ' .. K .. ' again')
  side('side record', 'HSET', META, 'v', '1', 'holder', ME, 'token', text(term), 'open', '1',
    'grant', grant_note(term))
  meta.holder, token, meta.token, meta.open = ME, term, text(term), '1'
  meta.grant = grant_note(term)
end

-- The same as `is_surely_mine` for those that write about the term: puts the side record right.
local function holds(term)
  if not is_surely_mine(term) then
    return false
  end
  mend(term)
  return true
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
    shown(meta.wish), shown(meta.wish_to or ''), shown(meta.wish_by or ''), text(token),
    text(math.min(stands_until, now + TTL_MAX * 1000)), shown(meta.wish_refused or ''),
  }
end

local function quarantine_why()
  if (meta.quarantine_why or '') == '' then
    return 'somebody else put the resource into quarantine'
  end
  return shown(meta.quarantine_why)
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
    life.text, text(remaining(paused_until)), is_reserved() and '1' or '0',
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

-- Attempts that are over, one line per instance: when, the highest number, who. Returns the lines of
-- others and the caller's highest number.
local function refused_attempts()
  local others, highest = {}, -1
  for at, attempt, id in string.gmatch(meta.refused or '', '(%d+) (%d+) ([^\n]+)\n') do
    if id == ME then
      highest = math.max(highest, number(attempt) or -1)
    elseif (number(at) or 0) > now - REFUSED_KEPT then
      others[#others + 1] = at .. ' ' .. attempt .. ' ' .. id
    end
  end
  return others, highest
end

-- The words that make META refuse `attempt` and all earlier ones of the caller from now on. Those
-- that are too old to arrive are forgotten, and the oldest beyond the bound.
local function refused_field(attempt)
  local lines, highest = refused_attempts()
  lines[#lines + 1] = text(now) .. ' ' .. text(math.max(highest, attempt)) .. ' ' .. ME
  while #lines > REFUSED_MAX do
    table.remove(lines, 1)
  end
  return 'refused', table.concat(lines, '\n') .. '\n'
end

local function is_refused(attempt)
  local _, highest = refused_attempts()
  return attempt <= highest
end

if refusal then
  return refusal
end
