-- As in keys.lua, the other keys are the results'. Reply per key:
--   '-' | 'C', the claim, 1 = its session lives, else 0 | 'D', ms for which it stays done, 1 = it has a result, else 0
local replies = {}
for i = 1, COUNT do
  local found = held(i)
  if found == DONE then
    replies[i] = { 'D', left_ms(i), redis.call('EXISTS', other(i)) }
  elseif found then
    local by = string.byte(found) ~= 67 and attempt(found) -- 67 = C
    replies[i] = { 'C', by and string.format('C%s|%.0f|0|batch', by, found - 1) or found, holds(found) and 1 or 0 }
  else
    replies[i] = { '-' }
  end
end
return replies
