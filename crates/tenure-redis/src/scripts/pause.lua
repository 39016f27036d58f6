-- Grant no new term until resumed. The running term goes on.
-- ARGV: for how long; zero resumes.
if conflict then
  return answer('conflict', conflict)
end
settle_life(0)
local lasts = tonumber(ARGV[6])
paused_until = lasts > 0 and now + lasts * 1000 or 0
local fault = must('HSET', META, 'v', '1', 'paused_until', text(paused_until), 'paused_from',
  text(now) .. ' ' .. text(paused_until))
if fault then return fault end
publish('p')
return answer('done')
