-- One string a key: KEYS[3 .. COUNT+2]. "1" = done, else a claim. "1" is one of Redis' shared integers, so that a done
-- key has no value object of its own.
local names, stored, call = KEYS, {}, redis.call

-- Read many at once: the overhead of a call is larger than its work. Kept by name, so that two items of one key see
-- each other.
for first = 3, COUNT + 2, 1000 do
  local found = call('MGET', unpack(names, first, math.min(first + 999, COUNT + 2)))
  for n = 1, #found do stored[names[first + n - 1]] = found[n] end
end

local function held(i)
  return meaning(stored[names[i + 2]])
end

local function set_claimed(i)
  local name, own = names[i + 2], OWN[i]
  call('SET', name, own, 'PX', ARGV[6])
  stored[name] = own
end

local function set_done(i)
  local name = names[i + 2]
  call('SET', name, DONE, 'PX', ARGV[7])
  stored[name] = DONE
end

local function set_absent(i)
  local name = names[i + 2]
  call('DEL', name)
  stored[name] = false
end

local function left_ms(i)
  local found = stored[names[i + 2]]
  if found == DONE then return call('PTTL', names[i + 2]) end
  local _, till = attempt(found)
  return till - NOW
end

local function other(i)
  return names[COUNT + 2 + i]
end

local function set_result(i, result)
  call('SET', other(i), result, 'PX', ARGV[7])
end

local function save() end
