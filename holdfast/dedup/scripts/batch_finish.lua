-- ARGV[7] = the attempt's number, [8] = ms for which its keys are done from now on, [9] = ms for which its claims are kept,
-- [10] = a print of its keys, or '', [11] = the server's id when it began, as of server.lua: another server may lack
-- some of its claims.
-- The attempt's session ends: it needs no renewal any more. Reply: OK, F.
local batch, number, by = finished_of(QUERY)
if by == BY then return redis.status_reply('OK') end -- asked again after no answer
local id = string.format('%.0f', ARGV[7] + 1)
local _, since = read(redis.call('HGET', ATTEMPTS, id))
local mine = redis.call('HGET', SINK, 'session') == BY and live(BY) and server() == ARGV[11]
if not mine or not since or since + ARGV[9] < NOW then
  return redis.status_reply('F')
end
local what = string.format('%.0f:%s:%s', BATCH, ARGV[7], BY)
redis.call('HSET', SINK, 'f:' .. QUERY, what, 'last', what .. ':' .. QUERY, 'o:' .. QUERY,
  redis.call('HGET', SINK, 'origin') or '', 'k:' .. QUERY, ARGV[10])
redis.call('PEXPIRE', SINK, ARGV[3])
redis.call('HSET', ATTEMPTS, id, string.format('F%.0f:%s', NOW + ARGV[8], BY))
redis.call('HDEL', SESSIONS, BY)
return redis.status_reply('OK')
