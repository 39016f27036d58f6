-- Record the caller as a member that is alive now.
-- ARGV: record, ready?, ttl, list members?
if conflict then
  return answer('conflict', conflict)
end
settle_life(tonumber(ARGV[8]))
shorten_stale_lease(tonumber(ARGV[8]))
beat(ARGV[6], ARGV[7], tonumber(ARGV[8]))
if ARGV[9] == '1' then
  list_members()
end
return answer('done')
