-- ARGV[7] = the attempt's number, [8] = its born, [9] = the server's life in which it began. Reply: L, M, T, S, H.
local now = redis.call('HMGET', SINK, 'session', 'born')
local given = tonumber(redis.call('HGET', ATTEMPTS, 'last') or 0)
if tonumber(now[2] or -1) ~= tonumber(ARGV[8]) or given < tonumber(ARGV[7]) then return redis.status_reply('L') end
if now[1] ~= BY then return redis.status_reply('T') end
if server() ~= ARGV[9] then return redis.status_reply('M') end
return redis.status_reply(live(BY) and 'H' or 'S')
