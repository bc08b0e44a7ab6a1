-- End the session: other sessions may take over what it holds from now on.
redis.call('HDEL', SESSIONS, ME)
return redis.status_reply('OK')
