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
    -- Only the field `wish` is emptied when a term ends: the others still tell who asked.
    local by = meta.wish_by or ''
    local was_asked = by ~= '' and reason == 'released' and meta.wish_token == term
      and (meta.wish_refused or '') == '' and tonumber(at) <= (number(meta.wish_until) or 0)
    journal(tonumber(at), 'closed', id, tonumber(term), reason, was_asked and 'asked by ' .. by)
  end
  return at ~= nil
end
