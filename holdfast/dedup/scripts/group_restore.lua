-- Put back a group that the server has lost, as this member saw it last.
-- ARGV[4] = lease in ms, [5] = format, [6] = subscription, [7] = stamp, [8] = plan, [9] = number of members, ME among
-- them; then per member: id, digest and description; then per offer: digest, text.
-- Reply: standing, LOST.
local refused = refusal()
if not refused then return standing() end -- another member has put this one back
if refused.ok == 'LOST' then return refused end
local function generation(stamp)
  return tonumber(string.match(stamp or '', '^%d+') or 0)
end
redis.call('HSETNX', HEAD, 'format', ARGV[5])
redis.call('HSETNX', HEAD, 'subscription', ARGV[6])
-- The group has begun anew with another format or subscription: `join` replies with the error.
if redis.call('HGET', HEAD, 'format') ~= ARGV[5] or redis.call('HGET', HEAD, 'subscription') ~= ARGV[6] then
  return redis.status_reply('LOST')
end
-- If two members come back with different plans, the newer plan counts. A group that began anew meanwhile has low
-- generations.
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
