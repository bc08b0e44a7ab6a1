-- A string a key: KEYS[3 .. COUNT+2]. "1" = done: one of Redis' shared integers, so that a key that is done has no value
-- object of its own; else a claim.
local function held(i)
  return meaning(redis.call('GET', KEYS[i + 2]))
end

local function set_claimed(i)
  redis.call('SET', KEYS[i + 2], OWN[i], 'PX', ARGV[6])
end

local function set_done(i)
  redis.call('SET', KEYS[i + 2], DONE, 'PX', ARGV[7])
end

local function set_absent(i)
  redis.call('DEL', KEYS[i + 2])
end

local function left_ms(i)
  local stored = redis.call('GET', KEYS[i + 2])
  if stored == DONE then return redis.call('PTTL', KEYS[i + 2]) end
  local _, till = attempt(stored)
  return till - NOW
end

local function other(i)
  return KEYS[COUNT + 2 + i]
end

local function set_result(i, result)
  redis.call('SET', other(i), result, 'PX', ARGV[7])
end

local function save() end
