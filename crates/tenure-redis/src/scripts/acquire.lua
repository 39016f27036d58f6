-- Take the resource if it is free, reserved for the caller, or was granted to this attempt.
-- ARGV: attempt, ttl, longest lease in the fleet, floor, fresh store (- for no, and its age says
-- nothing), lock delay, heal?, healed value, record, ready?, list members?, ballot: empty,
-- p(ropose) or the number to settle at, whether replicas must confirm it
local attempt, ttl, fleet_ttl = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local floor, fresh, lock_delay = tonumber(ARGV[9]), ARGV[10] == '1', tonumber(ARGV[11])
local age_counts = ARGV[10] ~= '-'
local heals, healed, record, ready, lists = ARGV[12] == '1', ARGV[13], ARGV[14], ARGV[15], ARGV[16]
local alone, proposes, settled = ARGV[17] == '', ARGV[17] == 'p', tonumber(ARGV[17])
local waits = ARGV[18] == '1'
local EXPIRY_GRAIN = 1000 -- ms; TIME and the clock of expiries may differ within a script

if math.max(floor, settled or 0) > now + YEAR then
  conflict = conflict or 'the token that this instance saw is over a year ahead of the store clock'
elseif (token or 0) > now + YEAR then
  conflict = conflict or 'token in ' .. META .. ' is more than a year ahead of the store clock'
end
if conflict then
  return answer('conflict', conflict)
end
fleet_ttl = math.max(ttl, fleet_ttl, LONGEST)
local longest = believed_for(fleet_ttl)
judge_life(fleet_ttl)

-- The heartbeat rides along with every outcome, after the lease write.
local function finish(kind, first, second)
  save_life()
  -- Who settles has proposed, and said so then.
  if not settled then
    beat(record, ready, ttl)
  end
  if lists == '1' then
    list_members()
  end
  return answer(kind, first, second)
end

-- The lowest number that this node would settle, where several decide: each answer tells the
-- clock as well, and who asked sees all of them.
local function proposal()
  return finish('granted', text(math.max(token or 0, quarantine_covers) + 1))
end

-- What replicas must confirm first is a term from then on: see confirm.lua.
local function note_grant(term)
  if not waits then
    journal(now, 'granted', ME, term)
  end
end

local function granted(term)
  publish('g ' .. text(term) .. ' ' .. text(ttl) .. ' ' .. ME)
  return finish('granted', text(term))
end

-- Same attempt as the grant: its answer was lost on the way. Unlike a renewal it is not believed in
-- yet, so it waits where the store may have forgotten a later term.
if names_me(token) and meta.attempt == text(attempt) and token >= floor then
  if quarantine_until > now then
    return finish('quarantine', text(remaining(quarantine_until)), quarantine_why())
  end
  if proposes then
    return proposal()
  end
  if settled and settled < token then
    return finish('lost', 'other', text(token))
  end
  local fault = must('PEXPIRE', K, text(ttl))
  if fault then return fault end
  pttl = ttl
  if settled and settled > token then
    -- Nobody believes in the earlier number: the attempt was not granted by a majority.
    fault = must('HSET', META, 'token', text(settled), 'grant', grant_note(settled))
    if fault then return fault end
    token, meta.token = settled, text(settled)
  end
  side('side record', 'HSET', META, 'renewed_at', text(now), 'expires_at', text(now + ttl * 1000))
  return finish('granted', text(token))
end

-- Abandoned before, or a late copy of an attempt whose term is over.
local is_late = meta.holder == ME and attempt <= (number(meta.attempt) or -1)
  and not (pttl ~= -2 and holder == ME)
if is_refused(attempt) or is_late then
  return finish('refused')
end

local paused_ms = remaining(paused_until)
local reserved = is_reserved()

-- Reserved for the caller by a hand-over: the token was drawn then.
if reserved and alone and holder == ME and token >= floor then
  -- A claim begins a term: after a loss of data, leases from before may still be believed in.
  if quarantine_until > now then
    return finish('quarantine', text(remaining(quarantine_until)), quarantine_why())
  end
  if paused_ms > 0 then
    return finish('paused', text(paused_ms))
  end
  local fault = must('PEXPIRE', K, text(ttl))
  if fault then return fault end
  pttl = ttl
  fault = must('HSET', META, 'attempt', text(attempt), 'granted_at', text(now), 'renewed_at',
    text(now), 'expires_at', text(now + ttl * 1000), 'max_ttl', text(math.max(max_ttl, fleet_ttl)),
    'open', '1', 'claim', '', 'grant', grant_note(token), 'unconfirmed', waits and meta.token or '')
  if fault then return fault end
  meta.claim, meta.unconfirmed = '', waits and meta.token or ''
  note_grant(token)
  return granted(token)
end

-- Why this store must have forgotten a term that the caller has seen, unless it was waited for.
local function forgotten()
  if (token or 0) >= floor or quarantine_covers >= floor then
    return nil
  end
  return 'the store knows token ' .. text(token or 0) .. ', this instance saw ' .. text(floor)
end

if pttl ~= -2 and holder ~= QUARANTINE then
  shorten_stale_lease(fleet_ttl)
  -- Both are waited for at once: the lease that came back, and what was lost behind it.
  local lost = token and forgotten()
  if lost then
    if quarantine_until <= now then
      begin_quarantine(longest, lost)
    end
    quarantine_covers, quarantine_is_new = floor, true
  end
  if reserved then
    if pttl < 0 or pttl > TTL_MAX then
      warn(K .. ' was reserved without a bound: cut short')
      side('reservation', 'PEXPIRE', K, text(longest))
      pttl = longest
    end
    return finish('reserved', text(pttl))
  end
  if heals and pttl == -1 and shown(holder) == healed then
    local fault = must('PEXPIRE', K, text(longest))
    if fault then return fault end
    pttl = longest
    warn(K .. ' had no expiry: it ends in ' .. text(longest) .. ' ms unless its holder renews')
  end
  return finish('held')
end

-- The term on record, should it have ended by itself.
local is_open = meta.open == '1' and token and meta.holder
local expires_at = math.min(number(meta.expires_at) or now, now + TTL_MAX * 1000)
local renewed_at = number(meta.renewed_at)
local is_odd = not renewed_at or renewed_at > now or expires_at > renewed_at + longest * 1000
if is_open and lock_delay > 0 and is_odd then
  -- The clock stepped back since then, or somebody else wrote this: the lease, and the delay behind
  -- it, count from now on, also while a quarantine runs.
  local lease = math.max(0, (number(meta.expires_at) or 0) - (renewed_at or now))
  expires_at = now + math.min(lease, longest * 1000)
  side('side record', 'HSET', META, 'renewed_at', text(now), 'expires_at', text(expires_at))
end

-- What this store may have forgotten: terms that it has no record of, or that the caller has seen.
local why
local never_failed = age_counts and not life.weak and not life.failed_over
  and life.uptime * 1000 > longest + 1000
local nobody_led = floor == 0 and (life.complete or never_failed or fresh)
if not token and not nobody_led then
  why = 'the store has no record of earlier terms'
else
  why = forgotten()
end
-- A quarantine that runs already covers what was lost before it began.
local is_unknown = why ~= nil or life_is_new
if why and quarantine_until <= now then
  begin_quarantine(longest, why)
end

-- Whoever noticed first may have been unable to write history: a renewal names two keys.
local is_unnoted = quarantine_until > now and not quarantine_is_noted

local function note_history_loss()
  local known = math.max(token or 0, floor)
  quarantine_is_noted = quarantine_is_noted or is_unnoted
  local fault = must('HSET', META, 'v', '1', 'token', text(known), 'max_ttl',
    text(math.max(max_ttl, fleet_ttl)), 'incarnation', life.record, quarantine_fields())
  if fault then return fault end
  life_is_new, quarantine_is_new = false, false
  token, meta.token = known, text(known)
  if is_unnoted then
    journal(now, 'quarantined', ME, known, '', quarantine_why())
  end
end

if pttl ~= -2 and holder == QUARANTINE then
  local fault = (is_unknown or is_unnoted) and note_history_loss()
  if fault then return fault end
  local left = remaining(quarantine_until)
  local bound = math.max(left, longest)
  if pttl < 0 or pttl > bound + EXPIRY_GRAIN then
    warn(K .. ' was put into quarantine without a bound: cut short')
    side('quarantine', 'PEXPIRE', K, text(bound))
    pttl = bound
  elseif pttl < left then
    side('quarantine', 'PEXPIRE', K, text(left))
    pttl = left
  end
  return finish('quarantine', text(pttl), quarantine_why())
end

if quarantine_until > now then
  local fault = note_history_loss()
  if fault then return fault end
  local left = remaining(quarantine_until)
  fault = must('SET', K, QUARANTINE, 'PX', text(left))
  if fault then return fault end
  holder, pttl = QUARANTINE, left
  return finish('quarantine', text(left), quarantine_why())
end

if paused_ms > 0 then
  return finish('paused', text(paused_ms))
end

if is_open and lock_delay > 0 and expires_at + lock_delay * 1000 > now then
  return finish('delayed', text(remaining(expires_at + lock_delay * 1000)))
end

-- Free: grant.
if proposes then
  return proposal()
end
if settled and (token or 0) >= settled then
  return finish('lost', 'other', text(token))
end
local term = settled or math.max((token or 0) + 1, now, floor + 1, quarantine_covers + 1)
-- A settled number that no majority comes to is put back by an abandon.
local before = settled and text(token or 0) .. ' ' .. (meta.attempt or '') .. ' '
  .. (meta.open == '1' and '1' or '0') .. ' ' .. (meta.holder or '') or ''
-- The successor itself took over: whoever passed it on may ask again how that went.
local was_passed_on = meta.claim_to == ME and meta.claim_from_token == meta.token
local fault = must('HSET', META, 'v', '1', 'before', before, 'holder', ME, 'token', text(term),
  'attempt', text(attempt), 'granted_at', text(now), 'renewed_at', text(now), 'expires_at',
  text(now + ttl * 1000), 'max_ttl', text(math.max(max_ttl, fleet_ttl)), 'incarnation', life.record,
  'open', '1', 'grant', grant_note(term), 'quarantine_until', '0', 'quarantine_why', '', 'claim', '',
  'claim_from', was_passed_on and meta.claim_from or '', 'claim_from_token',
  was_passed_on and meta.claim_from_token or '', 'wish', '', 'unrecorded', '', 'unconfirmed',
  waits and text(term) or '')
if fault then return fault end
fault = must('SET', K, ME, 'PX', text(ttl))
if fault then return fault end
if settled then
  side('side record', 'HSET', META, 'before_lease', text(now) .. ' ' ..
    text(number(meta.renewed_at) or 0) .. ' ' .. text(number(meta.expires_at) or 0))
end
life_is_new, quarantine_is_new = false, false
-- A term that was never confirmed is none: history does not tell of its end either.
local ended = { holder = meta.holder, token = token, is_term = is_open and not is_unconfirmed() }
holder, pttl, token = ME, ttl, term
meta.holder, meta.token, meta.wish, meta.claim = ME, text(term), '', ''
meta.unconfirmed = waits and text(term) or ''

if not journal_unrecorded() and ended.is_term then
  if expires_at <= now then
    journal(expires_at, 'closed', ended.holder, ended.token, 'expired')
  else
    journal(now, 'closed', ended.holder, ended.token, 'vanished')
  end
end
note_grant(term)
return granted(term)
