-- A write of this connection, for the WAIT that follows it: WAIT looks at the last write of its own connection only,
-- and a call that is asked again after no answer may find everything done and write nothing.
-- Being a script, it may run when memory is full. KEYS[1] = any key of ours, ARGV[1] = anything.
redis.call('SET', KEYS[1], ARGV[1])
return redis.status_reply('OK')
