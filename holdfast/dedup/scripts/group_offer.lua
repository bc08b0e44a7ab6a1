-- ARGV[4] = digest of the offer, [5] = its text, [6] = the member's description. Reply: standing, LOST, UNKNOWN.
local refused = refusal()
if refused then return refused end
local said = ARGV[4] .. '\n' .. ARGV[6]
if redis.call('HGET', MEMBERS, ME) ~= said then
  redis.call('HSET', MEMBERS, ME, said)
  redis.call('HSET', OFFERS, ARGV[4], ARGV[5])
  changed()
  touch()
end
return standing()
