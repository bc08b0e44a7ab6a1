-- ARGV[4] = lease in ms, [5] = format, [6] = subscription, [7] = stamp, [8] = plan, [9] = number of members;
-- then per member: id, digest and who; then per offer: digest, text. All as it was seen last, with ME among the members.
-- Reply: standing, LOST.
local refused = refusal()
if not refused then return standing() end -- somebody has put us back
if refused.ok == 'LOST' then return refused end
local function generation(stamp)
  return tonumber(string.match(stamp or '', '^%d+') or 0)
end
redis.call('HSETNX', HEAD, 'format', ARGV[5])
redis.call('HSETNX', HEAD, 'subscription', ARGV[6])
-- Others have begun anew with something else: it is for `join` to say so.
if redis.call('HGET', HEAD, 'format') ~= ARGV[5] or redis.call('HGET', HEAD, 'subscription') ~= ARGV[6] then
  return redis.status_reply('LOST')
end
-- Of two that come back with different plans, the newer one counts; a group that began anew meanwhile has low ones.
if generation(redis.call('HGET', HEAD, 'stamp')) < generation(ARGV[7]) then set_plan(ARGV[7], ARGV[8]) end
local offers = 10 + 2 * ARGV[9]
for i = 10, offers - 1, 2 do
  if redis.call('HSETNX', SESSIONS, ARGV[i], string.format('%.0f:0', NOW + ARGV[4])) == 1 then
    redis.call('HSET', MEMBERS, ARGV[i], ARGV[i + 1])
  end
end
for i = offers, #ARGV, 2 do redis.call('HSETNX', OFFERS, ARGV[i], ARGV[i + 1]) end
put_session(ME, NOW + ARGV[4])
changed()
touch()
return standing()
