-- ARGV[3] = an attempt's session. The session of a finished attempt has ended already.
redis.call('HDEL', SESSIONS, ARGV[3])
return redis.status_reply('OK')
