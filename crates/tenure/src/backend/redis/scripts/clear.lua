-- Break glass: end whatever term there is, keep the token, let nobody in before the quarantine.
-- ARGV: reason, quarantine.
local reason, lasts = string.sub(ARGV[5], 1, SHOWN_MAX), math.min(tonumber(ARGV[6]), TTL_MAX * 1.01)

if conflict then
  return answer('conflict', conflict)
end
settle_life(0)
local ended = { holder = meta.holder }
ended.is_term = pttl ~= -2 and token and holder == meta.holder and not is_unconfirmed()
ended.is_foreign = pttl ~= -2 and holder ~= meta.holder and holder ~= QUARANTINE
quarantine_until = math.max(quarantine_until, now + lasts * 1000)
meta.quarantine_why = 'cleared by ' .. ME .. ': ' .. reason
local fault = must('HSET', META, 'v', '1', 'quarantine_until', text(quarantine_until),
  'quarantine_why', meta.quarantine_why, 'quarantine_noted', text(quarantine_until), 'open', '0',
  'claim', '', 'claim_from', '', 'wish', '')
if fault then return fault end
local left = remaining(quarantine_until)
if left > 0 then
  fault = must('SET', K, QUARANTINE, 'PX', text(left))
  holder, pttl = QUARANTINE, left
else
  fault = must('DEL', K)
  holder, pttl = '', -2
end
if fault then return fault end
if ended.is_term then
  journal(now, 'closed', ended.holder, token, 'cleared', reason)
elseif ended.is_foreign then
  journal(now, 'quarantined', ME, token or 0, '', meta.quarantine_why)
end
publish('r ' .. text(token or 0))
return answer('done')
