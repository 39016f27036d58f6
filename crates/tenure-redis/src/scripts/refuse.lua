-- Answer a wish with no. Only the holder may.
-- ARGV: token, reason.
local term, reason = tonumber(ARGV[6]), string.sub(ARGV[7], 1, SHOWN_MAX)

settle_life(0)
if not is_mine(term) then
  return lost()
end
if #wish_now() > 0 then
  local fault = must('HSET', META, 'wish_refused', reason)
  if fault then return fault end
  meta.wish_refused = reason
  publish('w ' .. text(term))
end
return answer('done')
