-- To one of several nodes: end exactly this term and let a successor go first.
-- ARGV: token, successor, for how long the others let it.
local term, successor, claim_ttl = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])

-- The same again: its answer was lost on the way.
if not conflict and meta.claim_from == ME and number(meta.claim_from_token) == term
  and meta.claim_to == successor then
  return answer('released')
end
if not is_mine(term) then
  settle_life(0)
  return lost()
end
local fault = must('DEL', K)
if fault then return fault end
holder, pttl = '', -2
local field, refused = refused_field(number(meta.attempt) or 0)
side('side record', 'HSET', META, 'open', '0', 'wish', '', 'claim', '', 'claim_to', successor,
  'claim_token', '', 'claim_from', ME, 'claim_from_token', text(term), field, refused)
forget_refused()
settle_life(0)
publish('t ' .. text(claim_ttl) .. ' ' .. successor)
journal(now, 'closed', ME, term, 'handed-over', successor)
return answer('released')
