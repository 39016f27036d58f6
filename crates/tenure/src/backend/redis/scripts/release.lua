-- End exactly this term and wake the others.
-- ARGV: token, reason.
local term, reason = tonumber(ARGV[5]), ARGV[6]

local failure = close(term, 'unrecorded',
  text(now) .. ' ' .. text(term) .. ' ' .. ME .. ' ' .. reason)
if failure then return failure end
publish('r ' .. text(term))
return answer('released')
