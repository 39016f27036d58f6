-- Break glass: end whatever term there is, keep the token, let nobody in before the quarantine.
-- ARGV: reason, the least time that the quarantine lasts: leases that are known here count, too.
local reason = string.sub(ARGV[6], 1, SHOWN_MAX)
local lasts = math.min(tonumber(ARGV[7]), math.ceil(TTL_MAX * 101 / 100))

if conflict then
  return answer('conflict', conflict)
end
settle_life(0)
local ended = { holder = meta.holder }
ended.is_term = pttl ~= -2 and token and holder == meta.holder and not is_unconfirmed()
ended.is_foreign = pttl ~= -2 and holder ~= meta.holder and holder ~= QUARANTINE
begin_quarantine(math.max(lasts, believed_for(0)), 'cleared by ' .. ME .. ': ' .. reason)
quarantine_is_noted = true
local fault = must('HSET', META, 'v', '1', 'open', '0', 'claim', '', 'claim_from', '', 'wish', '', 'grant', '', quarantine_fields())
if fault then return fault end
local left = remaining(quarantine_until)
fault = must('SET', K, QUARANTINE, 'PX', text(left))
if fault then return fault end
holder, pttl = QUARANTINE, left
if ended.is_term then
  journal(now, 'closed', ended.holder, token, 'cleared', reason)
elseif ended.is_foreign then
  journal(now, 'quarantined', ME, token or 0, '', meta.quarantine_why)
end
publish('r ' .. text(token or 0))
return answer('done')
