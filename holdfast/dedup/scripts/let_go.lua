-- KEYS[2..] = positions; from ARGV[3] on, per position: epoch (0 = whichever), the epoch with which those will be marked
-- or released (0 = that of the ownership), how many offsets are unacked, and which.
local at = 3
local function take()
  local value = tonumber(ARGV[at])
  at = at + 1
  return value
end

for i = 2, #KEYS do
  local p, epoch, known_as, count = position(KEYS[i]), take(), take(), take()
  local let = epoch == 0 and p.owner == ME or owned(p, epoch)
  local holder = string.format('%s:%.0f', ME, known_as > 0 and known_as or p.epoch)
  p.running = p.running or {}
  for _ = 1, count do
    local offset = take()
    if let and not is_done(p, offset) then p.running[offset] = holder end
  end
  if let then
    save_running(p)
    redis.call('HDEL', KEYS[i], 'owner')
  end
end
return redis.status_reply('OK')
