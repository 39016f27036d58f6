-- Shared by those that end exactly one term and leave the key free, with `...` in the side record:
-- returns what to answer where that did not come about, or nil.
local function close(term, ...)
  if not holds(term) then
    if record_is_foreign and holds_key() then
      local fault = must('DEL', K)
      if fault then return fault end
      holder, pttl = '', -2
      warn(conflict)
      return answer('released')
    end
    settle_life(0)
    return lost()
  end
  local fault = must('DEL', K)
  if fault then return fault end
  holder, pttl = '', -2
  local field, refused = refused_field(number(meta.attempt) or 0)
  side('side record', 'HSET', META, 'open', '0', 'wish', '', 'grant', '', field, refused, ...)
  settle_life(0)
end
