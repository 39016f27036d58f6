-- Read without taking part.
-- ARGV: list members?
if conflict and not key_is_foreign then
  warn(conflict) -- who holds the key is seen all the same
end
if ARGV[6] == '1' then
  list_members()
end
if key_is_foreign then
  return answer('conflict', conflict)
end
return answer('done')
