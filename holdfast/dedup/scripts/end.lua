-- End the session: what it holds may be taken over from now on.
redis.call('HDEL', SESSIONS, ME)
return redis.status_reply('OK')
