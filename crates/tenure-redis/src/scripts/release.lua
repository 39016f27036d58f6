-- End exactly this term and wake the others.
-- ARGV: token, reason.
local term, reason = tonumber(ARGV[6]), ARGV[7]

local failure = close(term, 'unrecorded',
  text(now) .. ' ' .. text(term) .. ' ' .. ME .. ' ' .. reason)
if failure then return failure end
publish('r ' .. text(term))
return answer('released')
