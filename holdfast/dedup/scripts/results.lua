-- As in keys.lua, the other keys are the results'. Reply per key: nil = not done, '' = done without a result.
local replies = {}
for i = 1, COUNT do
  replies[i] = held(i) == DONE and (redis.call('GET', other(i)) or '')
end
return replies
