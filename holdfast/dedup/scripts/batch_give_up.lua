-- ARGV[3] = a session. That of a finished attempt has gone already.
redis.call('HDEL', SESSIONS, ARGV[3])
return redis.status_reply('OK')
