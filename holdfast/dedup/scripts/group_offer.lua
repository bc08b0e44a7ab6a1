-- ARGV[4] = digest of the offer, [5] = its text. Reply: standing, LOST, UNKNOWN.
local refused = refusal()
if refused then return refused end
local digest, who = string.match(redis.call('HGET', MEMBERS, ME), '^([^\n]*)\n(.*)$')
if digest ~= ARGV[4] then
  redis.call('HSET', MEMBERS, ME, ARGV[4] .. '\n' .. who)
  redis.call('HSET', OFFERS, ARGV[4], ARGV[5])
  changed()
  touch()
end
return standing()
