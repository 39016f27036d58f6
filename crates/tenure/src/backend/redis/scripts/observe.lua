-- Read without taking part.
-- ARGV: list members?
if ARGV[5] == '1' then
  list_members()
end
if conflict then
  return answer('conflict', conflict)
end
return answer('done')
