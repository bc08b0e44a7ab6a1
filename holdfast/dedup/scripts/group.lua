-- Between common.lua and each script about a group. The sessions of common.lua are here the members' leases.
--   KEYS[1]  hash: member -> "deadline:call generation"; the dead stay for an hour, so that nothing late revives them
--   KEYS[2]  hash, the head: format, subscription, view, stamp, plan, planned (the view for which the plan was made),
--            since (when the plan was made, in ms); at = when the view rose last, server = on which server
--   KEYS[3]  hash: member of the group -> digest of its offer, a line feed, and its description
--   KEYS[4]  hash: digest -> an offer's text; once for all members that offer the same
local HEAD, MEMBERS, OFFERS, KEEP_MS = KEYS[2], KEYS[3], KEYS[4], ARGV[3]

local function number(field)
  return tonumber(redis.call('HGET', HEAD, field) or 0)
end

local function standing()
  local view, planned, stamp = unpack(redis.call('HMGET', HEAD, 'view', 'planned', 'stamp'))
  return { tonumber(view or 0), tonumber(planned or 0), stamp or '' }
end

local function refusal()
  if live(ME) then return nil end
  return redis.status_reply(redis.call('HEXISTS', SESSIONS, ME) == 1 and 'LOST' or 'UNKNOWN')
end

local function touch()
  for i = 1, 4 do redis.call('PEXPIRE', KEYS[i], KEEP_MS) end
end

-- After a change of members or offers: raises the view, and drops offers that no member has. No view is given a second
-- time: a member that has seen the first would take the second for it.
local function changed()
  rise(HEAD, 'view')
  local used = {}
  for _, member in ipairs(redis.call('HVALS', MEMBERS)) do used[string.match(member, '^[^\n]*')] = true end
  for _, digest in ipairs(redis.call('HKEYS', OFFERS)) do
    if not used[digest] then redis.call('HDEL', OFFERS, digest) end
  end
end

-- Removes dead members. Returns the ms until the first lease of the other members ends, -1 = there is no other.
local function bury()
  local fields, due, buried = redis.call('HGETALL', SESSIONS), -1, 0
  for i = 1, #fields, 2 do
    local id, deadline = fields[i], tonumber(string.match(fields[i + 1], '^(%d+):') or 0)
    if deadline > NOW then
      if id ~= ME and (due < 0 or deadline - NOW < due) then due = deadline - NOW end
    else
      buried = buried + redis.call('HDEL', MEMBERS, id)
      if deadline + 3600000 < NOW then redis.call('HDEL', SESSIONS, id) end
    end
  end
  if buried > 0 then changed() end
  return due
end

-- Whether the group is still as it was looked at: ARGV[4] = view, ARGV[5] = stamp.
local function as_looked_at()
  return number('view') == tonumber(ARGV[4]) and (redis.call('HGET', HEAD, 'stamp') or '') == ARGV[5]
end

local function set_plan(stamp, plan)
  redis.call('HSET', HEAD, 'stamp', stamp, 'plan', plan, 'since', string.format('%.0f', NOW))
end
