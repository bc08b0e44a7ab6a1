-- Behind common.lua, where a script has to know whether another server stands in the place of the one before.

-- Which server this is, and since when it is the primary: another text after each start and each failover. One there and back
-- leaves the server's id as it was; but a promotion gives the data another replication id.
local function server()
  local id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
  return id .. ':' .. (string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or '')
end

-- A counter in the hash KEY rises, which gives no number twice. A server in the place of another may be an older copy, without
-- the last of its rises. Fewer of them are lost than milliseconds have passed since the last one that is known: KEY's fields
-- server and at say by whom, and when.
local function rise(key, counter)
  local here, step = server(), 1
  local before = redis.call('HMGET', key, 'server', 'at')
  if before[1] and before[1] ~= here then step = math.max(1, NOW - before[2]) end
  redis.call('HSET', key, 'server', here, 'at', string.format('%.0f', NOW))
  return redis.call('HINCRBY', key, counter, string.format('%.0f', step))
end
