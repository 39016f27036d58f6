-- Follows a release in the same pipeline: what it could not write with its two keys.
if not conflict and journal_unrecorded() then
  side('side record', 'HSET', META, 'unrecorded', '')
end
local last = side('members', 'ZSCORE', BEATS, ME)
if last then
  side('members', 'ZADD', BEATS, text(now_ms), ME)
end
return answer('done')
