-- To one of several nodes: end exactly this term and let a successor go first.
-- ARGV: token, successor, for how long the others let it.
local term, successor, claim_ttl = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])

-- The same again: its answer was lost on the way.
if not conflict and meta.claim_from == ME and number(meta.claim_from_token) == term
  and meta.claim_to == successor then
  return answer('released')
end
local failure = close(term, 'claim', '', 'claim_to', successor, 'claim_token', '', 'claim_from', ME,
  'claim_from_token', text(term))
if failure then return failure end
publish('t ' .. text(term) .. ' ' .. text(claim_ttl) .. ' ' .. successor)
journal(now, 'closed', ME, term, 'handed-over', successor)
return answer('released')
