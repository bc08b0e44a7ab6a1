-- ARGV[4] = the stamp that is known; from ARGV[5] on, digests of offers that are known.
-- Reply: { standing, the plan where its stamp is another, else false, ms since it was made or -1, subscription,
--   { member, ms left, digest and who, ... }, { digest, offer, ... } of those that are not known }
local known, new = {}, {}
for i = 5, #ARGV do known[ARGV[i]] = true end
local members, all = {}, redis.call('HGETALL', MEMBERS)
for i = 1, #all, 2 do
  members[#members + 1] = all[i]
  members[#members + 1] = math.max(0, session(all[i]) - NOW)
  members[#members + 1] = all[i + 1]
  local digest = string.match(all[i + 1], '^[^\n]*')
  if not known[digest] then
    known[digest] = true
    new[#new + 1] = digest
    new[#new + 1] = redis.call('HGET', OFFERS, digest)
  end
end
local at, since = standing(), redis.call('HGET', HEAD, 'since')
local plan = at[3] ~= ARGV[4] and redis.call('HGET', HEAD, 'plan') or false
return { at, plan, since and math.max(0, NOW - since) or -1, redis.call('HGET', HEAD, 'subscription') or '', members, new }
