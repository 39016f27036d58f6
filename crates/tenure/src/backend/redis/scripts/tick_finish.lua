-- Record how a tick ended, inside the own term.
-- ARGV: tick, token, outcome ('ok' or 'failed WORDS'), how long a named one is kept.
local term, outcome, keep = tonumber(ARGV[7]), string.sub(ARGV[8], 1, 1024), ARGV[9]

settle_life(0)
if not is_mine(term) then
  return lost()
end
local recorded, fault = tick_read()
if fault then
  return tick_fault(fault)
end
if tick_number then
  if recorded == '' or string.sub(recorded, 1, 6) == 'begun ' then
    fault = must('HSET', TICKS, 'done', TICK, 'outcome', outcome)
    if fault then return fault end
    tick_prune(tick_number)
  end
else
  fault = must('SET', TICKS, outcome, 'PX', keep)
  if fault then return fault end
end
publish('k')
return answer('done')
