-- A write on this connection, for the WAIT that follows it. WAIT looks only at the last write of its own connection,
-- and a call that is repeated after no answer may find everything done and write nothing.
-- A script, because a script may run when memory is full. KEYS[1] = any key of ours, ARGV[1] = anything.
redis.call('SET', KEYS[1], ARGV[1])
return redis.status_reply('OK')
