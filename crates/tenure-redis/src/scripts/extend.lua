-- Shared by those that prolong a lease: returns the error to answer with, or nil.
local function extend(ttl)
  -- A longer lease than ever before must be known before it can be believed in.
  if ttl > max_ttl then
    local fault = must('HSET', META, 'max_ttl', text(ttl))
    if fault then return fault end
    max_ttl = ttl
  end
  local fault = must('PEXPIRE', K, text(ttl))
  if fault then return fault end
  pttl = ttl
  side('side record', 'HSET', META, 'renewed_at', text(now), 'expires_at', text(now + ttl * 1000))
end
