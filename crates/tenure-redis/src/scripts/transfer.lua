-- End exactly this term and reserve the resource for a successor, under a token drawn now.
-- ARGV: token, successor, time to claim.
local term, successor, claim_ttl = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])

-- The same hand-over again: its answer was lost on the way.
if not conflict and meta.claim_from == ME and number(meta.claim_from_token) == term
  and meta.claim_to == successor and number(meta.claim_token) then
  return answer('transferred', meta.claim_token)
end
if not holds(term) then
  settle_life(claim_ttl)
  return lost()
end
-- First, because it succeeds even when memory is full; the old term is closed anyway.
local fault = must('PEXPIRE', K, text(claim_ttl))
if fault then return fault end
pttl = claim_ttl
local drawn = math.max(term + 1, now, quarantine_covers + 1)
local field, refused = refused_field(number(meta.attempt) or 0)
fault = must('HSET', META, 'holder', successor, 'token', text(drawn), 'attempt', '', 'open', '0',
  'expires_at', text(now + claim_ttl * 1000), 'claim', successor, 'claim_to', successor,
  'claim_token', text(drawn), 'claim_from', ME, 'claim_from_token', text(term), 'wish', '',
  'grant', '', field, refused)
if fault then return fault end
fault = must('SET', K, successor, 'PX', text(claim_ttl))
if fault then return fault end
holder, token = successor, drawn
meta.holder, meta.token, meta.wish = successor, text(drawn), ''
meta.claim, meta.claim_token = successor, text(drawn)
settle_life(claim_ttl)
publish('t ' .. text(term) .. ' ' .. text(claim_ttl) .. ' ' .. successor)
journal(now, 'closed', ME, term, 'handed-over', successor)
return answer('transferred', text(drawn))
