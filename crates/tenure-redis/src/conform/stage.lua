-- Stands before a script that is compared with the model: the script itself is the real one, to the
-- letter. Here `redis` is another table, which takes the clock, what INFO says and whether the server
-- takes writes from the last argument, keeps expiries in years to come so that nothing ends by
-- itself, and keeps what is published for the answer.
local server, heard, STAGE = redis, {}, cjson.decode(ARGV[#ARGV])
local NOW_MS = math.floor(STAGE.now / 1000)
local WRITES = {
  SET = true, DEL = true, PEXPIRE = true, HSET = true, HDEL = true, ZADD = true, ZREM = true,
  ZREMRANGEBYSCORE = true, XADD = true,
}

local function digits(number)
  return string.format('%.0f', number)
end

local function run(how, command, ...)
  local words = { ... }
  if command == 'TIME' then
    return { digits(math.floor(STAGE.now / 1000000)), digits(STAGE.now % 1000000) }
  elseif command == 'INFO' then
    return STAGE[words[1]]
  elseif command == 'PUBLISH' then
    heard[#heard + 1] = words[2]
    return 0
  elseif command == 'PTTL' then
    local ends = server.call('PEXPIRETIME', words[1])
    return ends < 0 and ends or math.max(0, ends - STAGE.ahead - NOW_MS)
  elseif STAGE.read_only and WRITES[command] then
    return { err = "READONLY You can't write against a read only replica." }
  elseif command == 'PEXPIRE' then
    return server[how]('PEXPIREAT', words[1], digits(STAGE.ahead + NOW_MS + tonumber(words[2])))
  elseif command == 'SET' then
    for index = 3, #words do
      if words[index] == 'PX' then
        words[index] = 'PXAT'
        words[index + 1] = digits(STAGE.ahead + NOW_MS + tonumber(words[index + 1]))
      end
    end
  end
  return server[how](command, unpack(words))
end

local redis = {
  call = function(...) return run('call', ...) end,
  pcall = function(...) return run('pcall', ...) end,
  error_reply = server.error_reply,
}

local function script()
