-- Shared by all scripts that write, before they say anything about a term: a replica may be behind,
-- or may be a master that was replaced. What it knows is old news. Where INFO may not be asked, a
-- write that changes nothing tells; elsewhere it would make later writes pass a full memory.
if life.is_replica then
  return redis.error_reply('READONLY this server is a replica: only a master knows of terms')
elseif life.weak then
  local probe = redis.pcall('HDEL', META, 'nothing')
  if failed(probe) and string.find(probe.err, 'READONLY ', 1, true) then
    return redis.error_reply(probe.err)
  end
end
