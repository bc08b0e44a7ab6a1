-- ARGV[7] = the attempt's number, [8] = its born. Reply: L, T, S.
local now = redis.call('HMGET', SINK, 'session', 'born')
local given = tonumber(redis.call('HGET', ATTEMPTS, 'last') or 0)
if tonumber(now[2] or -1) ~= tonumber(ARGV[8]) or given < tonumber(ARGV[7]) then return redis.status_reply('L') end
return redis.status_reply(now[1] == BY and 'S' or 'T')
