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
    redis.call('HSETNX', KEYS[i], 'born', string.format('%.0f', NOW))
    redis.call('HINCRBY', KEYS[i], 'epoch', 1)
    redis.call('HSET', KEYS[i], 'owner', ME)
    redis.call('PEXPIRE', KEYS[i], ARGV[3])
    replies[i - 1] = redis.call('HGETALL', KEYS[i])
  end
end
return replies
