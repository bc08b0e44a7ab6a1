-- Begin a session. ARGV[3] = lease in ms. Reply: as of renew.lua, with 0 as the former deadline. Fields that have been
-- dead for an hour are removed: no request arrives that late.
local fields = redis.call('HGETALL', SESSIONS)
for i = 1, #fields, 2 do
  local deadline = tonumber(string.match(fields[i + 1], '^(%d+):') or 0)
  if deadline + 3600000 < NOW then redis.call('HDEL', SESSIONS, fields[i]) end
end
put_session(ME, NOW + ARGV[3])
return string.format('%s 0 %.0f', server(), NOW + ARGV[3])
