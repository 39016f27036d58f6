-- Start a tick inside the own term, unless it has run before.
-- ARGV: tick, token, rerun a crashed one?
local term, reruns = tonumber(ARGV[7]), ARGV[8] == '1'

settle_life(0)
if not is_mine(term) then
  return lost()
end
local recorded, fault = tick_read()
if fault then
  return tick_fault(fault)
end
local mine = 'begun ' .. text(term) .. ' ' .. ME
if recorded ~= '' and recorded ~= mine and not (is_begun(recorded) and reruns) then
  return tick_answer(recorded)
end
if tick_number then
  fault = tick_write(mine)
else
  fault = must('SET', TICKS, mine, 'PX', BEGUN_KEPT)
end
if fault then return fault end
return answer('tick-runs')
