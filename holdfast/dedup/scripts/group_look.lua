-- ARGV[4] = the stamp of the plan that the caller has; ARGV[5..] = digests of offers that the caller has.
-- Reply: { standing, the plan if its stamp differs, else false, ms since the plan was made or -1, subscription,
--   { member, ms left, digest and description, ... }, { digest, offer, ... } of offers that the caller does not have }
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
