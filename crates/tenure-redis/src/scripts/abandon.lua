-- Undo an acquire whose answer never came, and refuse it should it still be on its way.
-- ARGV: attempt.
local attempt = tonumber(ARGV[6])

if conflict then
  return answer('conflict', conflict)
end
local was_granted = names_me(token) and meta.attempt == text(attempt)
if was_granted then
  local fault = must('DEL', K)
  if fault then return fault end
  holder, pttl = '', -2
end
local field, refused = refused_field(attempt)
local fault = must('HSET', META, 'v', '1', field, refused)
if fault then return fault end
settle_life(0)
if was_granted then
  -- A number that no majority settled must not keep this node from adopting an earlier one.
  local known, before_attempt, before_open, before_holder =
    string.match(meta.before or '', '^(%d+) (%d*) ([01]) (.*)$')
  if known then
    side('side record', 'HSET', META, 'token', known, 'attempt', before_attempt, 'open',
      before_open, 'holder', before_holder, 'before', '', 'undone', text(token) .. ' ' .. ME,
      'wish', '', 'grant', '')
    -- Nobody led by it: a lock delay goes by the lease before.
    local noted, renewed_at, expires_at =
      string.match(meta.before_lease or '', '^(%d+) (%d+) (%d+)$')
    if noted == meta.granted_at and number(renewed_at) and number(expires_at) then
      side('side record', 'HSET', META, 'renewed_at', renewed_at, 'expires_at', expires_at)
    end
  else
    side('side record', 'HSET', META, 'open', '0', 'wish', '', 'grant', '')
  end
  if not is_unconfirmed() then
    journal(now, 'closed', ME, token, 'too-late')
  end
  publish('r ' .. text(token))
end
return answer('abandoned', was_granted and '1' or '0')
