-- Extend the lease of exactly this term. Always writes.
-- ARGV: token, ttl.
local term, ttl = tonumber(ARGV[5]), tonumber(ARGV[6])

if not is_mine(term) then
  settle_life(ttl)
  return lost()
end
local fault = extend(ttl)
if fault then return fault end
settle_life(ttl)
return answer('renewed')
