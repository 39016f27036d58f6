-- Remove the caller from the members.
if conflict then
  return answer('conflict', conflict)
end
settle_life(0)
strike({ ME })
publish('m')
return answer('done')
