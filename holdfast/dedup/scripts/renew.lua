-- Keep a session alive. ARGV[3] = lease in ms. A dead session is never revived: another may have taken over already.
-- Reply: LOST, or "server former-deadline new-deadline"; server as in server.lua, deadlines in this server's ms.
if not live(ME) then return redis.status_reply('LOST') end
local knew = session(ME)
put_session(ME, NOW + ARGV[3])
return string.format('%s %.0f %.0f', server(), knew, NOW + ARGV[3])
