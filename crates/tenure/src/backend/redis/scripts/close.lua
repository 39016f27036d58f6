-- Shared by those that end exactly one term and leave the key free, with `...` in the side record:
-- returns what to answer where that did not come about, or nil.
local function close(term, ...)
  if not is_mine(term) then
    settle_life(0)
    return lost()
  end
  local fault = must('DEL', K)
  if fault then return fault end
  holder, pttl = '', -2
  local field, refused = refused_field(number(meta.attempt) or 0)
  side('side record', 'HSET', META, 'open', '0', 'wish', '', field, refused, ...)
  forget_refused()
  settle_life(0)
end
