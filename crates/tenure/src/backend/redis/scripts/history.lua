-- The latest entries of the history, newest first.
-- ARGV: at most this many.
if conflict then
  return answer('conflict', conflict)
end
local entries = redis.pcall('XREVRANGE', HISTORY, '+', '-', 'COUNT', ARGV[5])
if failed(entries) then
  if string.find(entries.err, 'WRONGTYPE', 1, true) then
    return answer('conflict', HISTORY .. ' is not a stream')
  end
  return redis.error_reply(entries.err)
end
local told = answer('history')
told[8] = entries
return told
