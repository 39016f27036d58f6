-- The history of terms: a capped stream, written aside.
local HISTORY = KEYS[3]

local function journal(at, what, id, term, reason, detail)
  side('history', 'XADD', HISTORY, 'MAXLEN', '~', '1000', '*', 'at', text(at), 'what', what, 'id',
    shown(id), 'token', text(term), 'reason', reason or '', 'detail', string.sub(detail or '', 1, 512))
end

-- A release names only two keys; what history shall say of it waits in the side record.
local function journal_unrecorded()
  local at, term, id, reason =
    string.match(meta.unrecorded or '', '^(%d+) (%d+) (%S+) ([%w-]+)$')
  if at then
    journal(tonumber(at), 'closed', id, tonumber(term), reason)
  end
  return at ~= nil
end
