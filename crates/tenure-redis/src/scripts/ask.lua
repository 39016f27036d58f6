-- Ask the holder of exactly this term for something. Anyone may.
-- ARGV: token, wish, successor, how long it stands.
local term, wish, successor, stands_for = tonumber(ARGV[6]), ARGV[7], ARGV[8], tonumber(ARGV[9])

if conflict then
  return answer('conflict', conflict)
end
settle_life(0)
if pttl == -2 or holder ~= meta.holder or token ~= term then
  return answer('no-such-term')
end
meta.wish, meta.wish_to, meta.wish_by, meta.wish_refused = wish, successor, ME, ''
meta.wish_token, meta.wish_until = text(term), text(now + stands_for * 1000)
local fault = must('HSET', META, 'wish', wish, 'wish_to', successor, 'wish_by', ME, 'wish_token',
  meta.wish_token, 'wish_until', meta.wish_until, 'wish_refused', '')
if fault then return fault end
publish('w ' .. text(term))
return answer('done')
