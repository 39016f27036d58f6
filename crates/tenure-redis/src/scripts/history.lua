-- The latest entries of the history, newest first.
-- ARGV: at most this many.
local NAMES = { at = true, what = true, id = true, token = true, reason = true, detail = true }

-- Others may write here, too: of each entry only what we know, and not more than we would write.
local function readable_entries(entries)
  local readable = {}
  for _, entry in ipairs(entries) do
    local fields = {}
    for index = 1, math.min(#entry[2], 64), 2 do
      if NAMES[entry[2][index]] then
        fields[#fields + 1] = entry[2][index]
        fields[#fields + 1] = shown(entry[2][index + 1])
      end
    end
    readable[#readable + 1] = { entry[1], fields }
  end
  return readable
end

local entries = redis.pcall('XREVRANGE', HISTORY, '+', '-', 'COUNT', ARGV[6])
if failed(entries) then
  if string.find(entries.err, 'WRONGTYPE', 1, true) then
    return answer('conflict', HISTORY .. ' is not a stream')
  end
  return redis.error_reply(entries.err)
end
local told = answer('history')
told[8] = readable_entries(entries)
return told
