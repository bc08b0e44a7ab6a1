-- Keep a session alive. ARGV[3] = lease in ms. A dead one is never revived: another may have taken over already.
-- Reply: LOST, or which server this is, as of server.lua.
if not live(ME) then return redis.status_reply('LOST') end
put_session(ME, NOW + ARGV[3])
return server()
