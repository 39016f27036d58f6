-- Extend the lease of exactly this term. Always writes.
-- ARGV: token, ttl, longest lease in the fleet.
local term, ttl = tonumber(ARGV[6]), tonumber(ARGV[7])
local fleet_ttl = math.max(ttl, tonumber(ARGV[8]))

if not is_mine(term) then
  if record_is_foreign and holds_key() then
    -- The key is the lease. What became of the side record is for a person to see.
    local fault = must('PEXPIRE', K, text(ttl))
    if fault then return fault end
    pttl = ttl
    warn(conflict)
    return answer('renewed')
  end
  settle_life(fleet_ttl)
  return lost()
end
mend(term)
local fault = extend(ttl)
if fault then return fault end
settle_life(fleet_ttl)
return answer('renewed')
