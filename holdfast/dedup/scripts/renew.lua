-- Keep a session alive. ARGV[3] = lease in ms. A dead one is never revived: another may have taken over already.
-- Reply: LOST, or this server's id, which is another one after each start and each failover.
if not live(ME) then return redis.status_reply('LOST') end
put_session(ME, NOW + ARGV[3])
return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
