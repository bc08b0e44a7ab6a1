-- Behind common.lua, in scripts that have to notice when another server has taken the place of the former one.

-- The server's id: its run id and its replication id. It changes with each start and each failover. After a failover
-- there and back the run id is the same again, but a promotion changes the replication id.
local function server()
  local id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
  return id .. ':' .. (string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or '')
end

-- Raises a counter in the hash KEY. No number is given twice. A server that took the place of another may be an older
-- copy, which lacks the last rises. Fewer rises are lost than milliseconds have passed since the last rise that the
-- copy has, so the counter rises by these. KEY's fields `server` and `at` tell which server made the last rise, and
-- when.
local function rise(key, counter)
  local here, step = server(), 1
  local before = redis.call('HMGET', key, 'server', 'at')
  if before[1] and before[1] ~= here then step = math.max(1, NOW - before[2]) end
  redis.call('HSET', key, 'server', here, 'at', string.format('%.0f', NOW))
  return redis.call('HINCRBY', key, counter, string.format('%.0f', step))
end
