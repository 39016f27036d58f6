-- To one of several nodes: end exactly this term and let a successor go first.
-- ARGV: token, successor, for how long the others let it.
local term, successor, claim_ttl = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])

local failure = close(term)
if failure then return failure end
publish('t ' .. text(term) .. ' ' .. text(claim_ttl) .. ' ' .. successor)
journal(now, 'closed', ME, term, 'handed-over', successor)
return answer('released')
