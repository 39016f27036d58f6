-- Record the caller as a member that is alive now.
-- ARGV: record, ready?, ttl, list members?
if conflict then
  return answer('conflict', conflict)
end
settle_life(0)
beat(ARGV[5], ARGV[6], tonumber(ARGV[7]))
if ARGV[8] == '1' then
  list_members()
end
return answer('done')
