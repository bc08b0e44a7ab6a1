-- The query's name is never used again. What it has finished last stays the sink's last. Reply: OK.
redis.call('HDEL', SINK, 'f:' .. QUERY, 'o:' .. QUERY, 'k:' .. QUERY)
return redis.status_reply('OK')
