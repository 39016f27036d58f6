-- Record how a tick ended, inside the own term; or that it never started, which leaves it open.
-- ARGV: tick, token, outcome ('ok', 'failed WORDS', or '' for one that never started), how long a
-- named one is kept.
local term, outcome, keep = tonumber(ARGV[7]), string.sub(ARGV[8], 1, WORDS_MAX), ARGV[9]

settle_life(0)
if not is_mine(term) then
  return lost()
end
local recorded, fault = tick_read()
if fault then
  return tick_fault(fault)
end
local is_open = recorded == '' or is_begun(recorded)
if tick_number then
  -- A record is one line.
  outcome = string.gsub(outcome, '[\r\n]', ' ')
  if not is_open then
    outcome = recorded
  end
  fault = tick_write(outcome ~= '' and outcome or nil)
elseif outcome ~= '' then
  fault = must('SET', TICKS, outcome, 'PX', keep)
elseif is_open then
  fault = must('DEL', TICKS)
end
if fault then return fault end
publish('k')
return answer('done')
