-- As in keys.lua; one more key, if given, is that of the fence.
-- Reply: one character a key, N D B F; with the fence's key { those characters, the fence of the keys that are N }.
--
-- Each call has a higher fence than all before it. Fences start from this server's milliseconds, so that they go on
-- rising after the server has lost its data.
local function reply(verdicts)
  if not other(1) then return verdicts end
  local fence = string.format('%.0f', math.max(NOW, (tonumber(redis.call('GET', other(1)) or 0)) + 1))
  redis.call('SET', other(1), fence)
  return { verdicts, fence }
end

if not live(ME) then return reply(string.rep('F', COUNT)) end
local verdicts = {}
for i = 1, COUNT do
  local found = held(i)
  if found == DONE then
    verdicts[i] = 'D'
  elseif found == OWN[i] then
    verdicts[i] = 'N' -- asked again after no answer
  elseif found and holds(found) then
    verdicts[i] = 'B' -- even if the holder is another record of this session: two records of one key are never both NEW
  else
    set_claimed(i)
    verdicts[i] = 'N'
  end
end
save()
return reply(table.concat(verdicts))
