-- A key is a digest of 16 bytes; ARGV[5] = those of the items, one after the other.
--   KEYS[3]             hash: digest -> when it was claimed, in ms since 1970 (13 digits), and the claim
--   KEYS[4 .. COUNT+3]  the items' buckets. Hash: digest -> until when it is done, in ms since 1970; or the id of the batch
--                       attempt that has claimed it, a smaller number. A claim in KEYS[3] takes precedence
local CLAIMS, UNTIL, SINCE = KEYS[3], string.format('%.0f', NOW + WINDOW_MS), string.format('%013.0f', NOW)
local sub, names, all, digests, claims = string.sub, KEYS, ARGV[5], {}, {}
for i = 1, COUNT do digests[i] = sub(all, 16 * i - 15, 16 * i) end

-- Read many at once: the overhead of a call is larger than its work. Kept by digest, so that two items of one key see
-- each other.
for first = 1, COUNT, 1000 do
  local found = call('HMGET', CLAIMS, unpack(digests, first, math.min(first + 999, COUNT)))
  for n, stored in ipairs(found) do claims[digests[first + n - 1]] = stored and sub(stored, 14) end
end

local function held(i)
  if claims[digests[i]] then return claims[digests[i]] end
  local till, id = done_until(call('HGET', names[i + 3], digests[i]))
  return till >= NOW and DONE or id
end

local function left_ms(i)
  return done_until(call('HGET', names[i + 3], digests[i])) - NOW
end

local function other(i)
  return KEYS[COUNT + 3 + i]
end

local claimed, unclaimed, LONGER = {}, {}, string.format('%.0f', math.floor(WINDOW_MS * 1.25))

local function set_claimed(i)
  local digest, own, n = digests[i], OWN[i], #claimed
  claimed[n + 1], claimed[n + 2] = digest, SINCE .. own
  claims[digest] = own
end

-- The bucket's expiry is set beyond this key's. The next keys then find it late enough, and only one write in some
-- dozens pays for moving it and for a sweep. A bucket that outgrew its limit is swept in small parts instead, at each
-- write.
local function set_done(i)
  local bucket, digest = names[i + 3], digests[i]
  call('HSET', bucket, digest, UNTIL)
  local left = call('PTTL', bucket)
  if left <= WINDOW_MS then
    local seen = left < 0 or sweep(bucket) -- below 0: made just now
    call('PEXPIRE', bucket, seen and LONGER or ARGV[7])
  end
  unclaimed[#unclaimed + 1] = digest
  claims[digest] = false
end

local function set_result(i, result)
  call('SET', other(i), result, 'PXAT', UNTIL)
end

local function set_absent(i)
  call('HDEL', KEYS[i + 3], digests[i])
  unclaimed[#unclaimed + 1] = digests[i]
  claims[digests[i]] = false
end

-- Looks at a few claims, and removes those that are garbage.
local function tidy()
  local fields = call('HRANDFIELD', CLAIMS, 8, 'WITHVALUES')
  for n = 1, #fields, 2 do
    if tonumber(sub(fields[n + 1], 1, 13)) + GARBAGE_MS < NOW then call('HDEL', CLAIMS, fields[n]) end
  end
  call('PEXPIRE', CLAIMS, GARBAGE_MS)
end

local function save()
  for first = 1, #claimed, 2000 do
    call('HSET', CLAIMS, unpack(claimed, first, math.min(first + 1999, #claimed)))
  end
  for first = 1, #unclaimed, 1000 do
    call('HDEL', CLAIMS, unpack(unclaimed, first, math.min(first + 999, #unclaimed)))
  end
  if #claimed > 0 then tidy() end
end
