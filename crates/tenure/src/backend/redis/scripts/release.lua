-- End exactly this term and wake the others.
-- ARGV: token, reason.
local term, reason = tonumber(ARGV[5]), ARGV[6]

if not is_mine(term) then
  settle_life(0)
  return lost()
end
local fault = must('DEL', K)
if fault then return fault end
holder, pttl = '', -2
local field, refused = refused_field(number(meta.attempt) or 0)
side('side record', 'HSET', META, 'open', '0', 'wish', '', field, refused, 'unrecorded',
  text(now) .. ' ' .. text(term) .. ' ' .. ME .. ' ' .. reason)
forget_refused()
settle_life(0)
publish('r ' .. text(term))
return answer('released')
