-- KEYS[2..] = business keys; ARGV[3] = the tokens. Only what is still held by exactly this record is given back.
for i, own in ipairs(own_claims(ARGV[3])) do
  if redis.call('GET', KEYS[i + 1]) == own then redis.call('DEL', KEYS[i + 1]) end
end
return redis.status_reply('OK')
