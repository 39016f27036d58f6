-- How a tick stands, without taking part.
-- ARGV: tick.
if conflict then
  return answer('conflict', conflict)
end
local recorded, fault = tick_read()
if fault then
  return tick_fault(fault)
end
if recorded == '' then
  return answer('tick-unknown')
end
return tick_answer(recorded)
