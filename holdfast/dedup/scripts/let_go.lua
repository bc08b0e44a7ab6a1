-- KEYS[2..] = positions; from ARGV[3] on, per position: epoch (0 = whichever), number of hands, the offsets in hand.
local at = 3
local function take()
  local value = tonumber(ARGV[at])
  at = at + 1
  return value
end

for i = 2, #KEYS do
  local p, epoch, count = position(KEYS[i]), take(), take()
  local let = epoch == 0 and p.owner == ME or owned(p, epoch)
  p.running = p.running or {}
  for _ = 1, count do
    local offset = take()
    if let and not is_done(p, offset) then p.running[offset] = string.format('%s:%.0f', ME, p.epoch) end
  end
  if let then
    save_running(p)
    redis.call('HDEL', KEYS[i], 'owner')
  end
end
return redis.status_reply('OK')
