-- ARGV[4] = lease in ms, [5] = format, [6] = subscription, [7] = description, [8] = digest of the offer, [9] = its
-- text; [10..] = addresses of the servers that this member sees, each as it stands in the description, whose last part
-- they are.
-- Reply: standing; LOST; { 'ELSEWHERE', descriptions ... } = members that see none of these servers;
-- { 'DIFFERS', their subscription, descriptions ... }; { 'FORMAT', the group's }.
local format = redis.call('HGET', HEAD, 'format')
if format and format ~= ARGV[5] then return { 'FORMAT', format } end
if redis.call('HEXISTS', SESSIONS, ME) == 1 and not live(ME) then return redis.status_reply('LOST') end
bury()
local function sees_mine(who)
  if #ARGV < 10 or string.sub(who, -3) ~= '"]]' then return true end -- one of the two members does not list its servers
  for i = 10, #ARGV do
    if string.find(who, ARGV[i], 1, true) then return true end
  end
  return false
end
local members, far = redis.call('HGETALL', MEMBERS), { 'ELSEWHERE' }
for i = 1, #members, 2 do
  local who = string.match(members[i + 1], '\n(.*)$')
  if members[i] ~= ME and not sees_mine(who) then far[#far + 1] = who end
end
if #far > 1 then return far end
if #members > 0 and redis.call('HGET', HEAD, 'subscription') ~= ARGV[6] then
  local reply = { 'DIFFERS', redis.call('HGET', HEAD, 'subscription') or '' }
  for i = 2, #members, 2 do reply[#reply + 1] = string.match(members[i], '\n(.*)$') end
  return reply
end
put_session(ME, NOW + ARGV[4])
redis.call('HSET', HEAD, 'format', ARGV[5], 'subscription', ARGV[6])
local known = redis.call('HGET', MEMBERS, ME)
redis.call('HSET', MEMBERS, ME, ARGV[8] .. '\n' .. ARGV[7])
redis.call('HSET', OFFERS, ARGV[8], ARGV[9])
if known ~= ARGV[8] .. '\n' .. ARGV[7] then changed() end -- else the call was repeated after no answer
touch()
return standing()
