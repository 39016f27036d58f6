-- Extend the lease of exactly this term. Always writes.
-- ARGV: token, ttl.
local term, ttl = tonumber(ARGV[5]), tonumber(ARGV[6])

if not is_mine(term) then
  settle_life(ttl)
  return lost()
end
-- A longer lease than ever before must be known before it can be believed in.
if ttl > max_ttl then
  local fault = must('HSET', META, 'max_ttl', text(ttl))
  if fault then return fault end
  max_ttl = ttl
end
local fault = must('PEXPIRE', K, text(ttl))
if fault then return fault end
pttl = ttl
side('side record', 'HSET', META, 'renewed_at', text(now), 'expires_at', text(now + ttl * 1000))
settle_life(ttl)
return answer('renewed')
