-- Follows in the same pipeline: while the caller leads, a heartbeat at a key of its own, for programs
-- of another kind that look for it there. Whoever does not lead has none.
-- KEYS[3]: that key. ARGV: how long it is kept; 0 where a term ends.
local HEARTBEAT, kept = KEYS[3], tonumber(ARGV[6])

local leads = not conflict and pttl ~= -2 and holder == ME and meta.holder == ME and meta.open == '1'
if leads and kept > 0 then
  side('heartbeat key', 'SET', HEARTBEAT, text(math.floor(now / 1000)), 'PX', text(kept))
else
  side('heartbeat key', 'DEL', HEARTBEAT)
end
return answer('done')
