-- As in keys.lua, the other keys are the results'; ARGV[8] = '1': also keys that a living session has claimed.
-- Reply: one character a key: D or C = removed (it was done, claimed), - = there was nothing, H = held by a living
-- session, kept.
local replies = {}
for i = 1, COUNT do
  local found = held(i)
  if found and found ~= DONE and ARGV[8] ~= '1' and holds(found) then
    replies[i] = 'H'
  else
    replies[i] = found == DONE and 'D' or found and 'C' or '-'
    set_absent(i)
    redis.call('DEL', other(i))
  end
end
save()
return table.concat(replies)
