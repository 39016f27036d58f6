-- Write a value unless a newer leader has written it before.
-- KEYS: the value, its fence. ARGV: call number, four unused, token, 'set' or 'del', value, ttl.
local NUMBER, token, deed, value, ttl = ARGV[1], ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local function failed(reply)
  return type(reply) == 'table' and reply.err
end

local highest = redis.pcall('GET', KEYS[2])
if failed(highest) then
  return redis.error_reply(highest.err)
end
highest = highest or '0'
if #highest > 16 or not string.match(highest, '^%d+$') then
  return redis.error_reply('ERR the fence ' .. KEYS[2] .. ' holds something that is no token')
end
if tonumber(token) < tonumber(highest) then
  return { NUMBER, 'stale', highest }
end
-- The fence first: should the second write fail, an older leader is kept out all the same.
local reply = redis.pcall('SET', KEYS[2], token)
if not failed(reply) then
  if deed == 'del' then
    reply = redis.pcall('DEL', KEYS[1])
  elseif ttl ~= '' then
    reply = redis.pcall('SET', KEYS[1], value, 'PX', ttl)
  else
    reply = redis.pcall('SET', KEYS[1], value)
  end
end
if failed(reply) then
  return redis.error_reply(reply.err)
end
return { NUMBER, 'written', token }
