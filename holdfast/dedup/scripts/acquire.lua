-- KEYS[2..] = positions; ARGV[3] = ms that a position is kept unused.
-- Reply per position: 'F', 'W', or the whole hash as fields and values.
local replies = {}
for i = 2, #KEYS do
  local owner = redis.call('HGET', KEYS[i], 'owner')
  if not live(ME) then
    replies[i - 1] = 'F'
  elseif owner and owner ~= ME and live(owner) then
    replies[i - 1] = 'W'
  else
    -- A server that has lost the last acquires, an older copy after a failover, gives no fence a second time.
    local epoch = redis.call('HINCRBY', KEYS[i], 'epoch', 1)
    local born = math.max(tonumber(redis.call('HGET', KEYS[i], 'born') or 0), NOW - epoch)
    redis.call('HSET', KEYS[i], 'owner', ME, 'born', string.format('%.0f', born))
    redis.call('PEXPIRE', KEYS[i], ARGV[3])
    replies[i - 1] = redis.call('HGETALL', KEYS[i])
  end
end
return replies
