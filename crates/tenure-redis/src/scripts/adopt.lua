-- To one of several nodes: extend exactly this term, or take it over where its key is gone.
-- ARGV: token, ttl, longest lease in the fleet.
local term, ttl = tonumber(ARGV[6]), tonumber(ARGV[7])
local fleet_ttl = math.max(ttl, tonumber(ARGV[8]), LONGEST)

if holds(term) then
  local fault = extend(ttl)
  if fault then return fault end
  settle_life(fleet_ttl)
  return answer('renewed')
end
settle_life(fleet_ttl)
if conflict or pttl ~= -2 or quarantine_until > now then
  return lost()
end
if not token and not life.complete then
  -- What this node has forgotten may still be believed in.
  begin_quarantine(believed_for(fleet_ttl), 'this node has no record of earlier terms')
  local fault = must('HSET', META, 'v', '1', 'token', '0', 'max_ttl',
    text(math.max(max_ttl, fleet_ttl)), 'incarnation', life.record, quarantine_fields())
  if fault then return fault end
  return lost()
end
-- Never back behind a term that this node knows, nor into one that was closed here.
local known = token or 0
local is_open = known == term and meta.holder == ME and meta.open == '1'
if known > term then
  return answer('lost', 'other', text(known))
elseif known == term and not is_open or meta.undone == text(term) .. ' ' .. ME then
  return lost()
end
local fault = must('HSET', META, 'v', '1', 'holder', ME, 'token', text(term), 'attempt',
  is_open and meta.attempt or '0', 'granted_at', text(now), 'incarnation', life.record, 'open', '1',
  'max_ttl', text(math.max(max_ttl, ttl)), 'claim', '', 'claim_from', '', 'claim_from_token', '',
  'wish', '', 'before', '', 'grant', grant_note(term))
if fault then return fault end
fault = must('SET', K, ME, 'NX', 'PX', text(ttl))
if fault then return fault end
holder, token = ME, term
meta.holder, meta.token, meta.wish, meta.claim = ME, text(term), '', ''
max_ttl = math.max(max_ttl, ttl)
fault = extend(ttl)
if fault then return fault end
return answer('renewed')
