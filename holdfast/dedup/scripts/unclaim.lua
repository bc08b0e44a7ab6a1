-- KEYS[2..] = business keys; ARGV[3..] = the tokens. Only what is still held by exactly this record is given back.
local mine = 'C' .. ME .. '|'
for i = 2, #KEYS do
  if redis.call('GET', KEYS[i]) == mine .. ARGV[i + 1] then redis.call('DEL', KEYS[i]) end
end
return redis.status_reply('OK')
