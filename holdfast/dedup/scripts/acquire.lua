-- KEYS[2..] = positions; ARGV[3] = ms that a position is kept unused.
-- Reply per position: 'F', 'W', or the whole hash as fields and values; of a long one all but its chunks, and 'chunks'
-- with their number: chunks.lua replies with them.
local LONG = 1000
local FIELDS = { 'epoch', 'born', 'owner', 'w', 'running', 'again', 'since' }
local function without_chunks(key)
  local reply, found = {}, redis.call('HMGET', key, unpack(FIELDS))
  for i, name in ipairs(FIELDS) do
    if found[i] then reply[#reply + 1], reply[#reply + 2] = name, found[i] end
  end
  reply[#reply + 1], reply[#reply + 2] = 'chunks', tostring(redis.call('HLEN', key) - #reply / 2)
  return reply
end

local replies = {}
for i = 2, #KEYS do
  local owner = redis.call('HGET', KEYS[i], 'owner')
  if not live(ME) then
    replies[i - 1] = 'F'
  elseif owner and owner ~= ME and live(owner) then
    replies[i - 1] = 'W'
  else
    -- After a failover an older copy may lack the last acquires. It must not give a fence a second time.
    local epoch = redis.call('HINCRBY', KEYS[i], 'epoch', 1)
    local born = math.max(tonumber(redis.call('HGET', KEYS[i], 'born') or 0), NOW - epoch)
    redis.call('HSET', KEYS[i], 'owner', ME, 'born', string.format('%.0f', born))
    redis.call('PEXPIRE', KEYS[i], ARGV[3])
    replies[i - 1] = redis.call('HLEN', KEYS[i]) > LONG and without_chunks(KEYS[i]) or redis.call('HGETALL', KEYS[i])
  end
end
return replies
