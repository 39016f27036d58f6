-- Follows a grant that replicas had to confirm, once they have: from now on it is a term.
-- ARGV: token.
local term = tonumber(ARGV[6])

if is_mine(term) and is_unconfirmed() then
  side('side record', 'HSET', META, 'unconfirmed', '')
  meta.unconfirmed = ''
  journal(now, 'granted', ME, term)
  publish('g ' .. text(term) .. ' ' .. text(math.max(0, pttl)) .. ' ' .. ME)
end
return answer('done')
