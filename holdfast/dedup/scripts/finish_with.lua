-- As finish.lua, keeping a result with each key: as in keys.lua, the other keys are the results',
-- ARGV[8..] = the results, '' = none. Reply: one character a key, N D F; D = it was done before, by this record or
-- another.
local verdicts = {}
for i = 1, COUNT do
  local found = held(i)
  if to_finish(i, found) then
    local result = ARGV[7 + i]
    set_done(i)
    if result == '' then
      redis.call('DEL', other(i))
    else
      set_result(i, result)
    end
    verdicts[i] = 'N'
  else
    verdicts[i] = found == DONE and 'D' or 'F'
  end
end
save()
return table.concat(verdicts)
