-- The keys are as in keys_hashed.lua, but each bucket stands once: ARGV[5] = the digests, bucket by bucket,
-- ARGV[12..] = how many there are of each. Sorted digests cost two calls a bucket, instead of two a key.
local CLAIMS, verdicts, answered, sub, unpacked, rep, at = KEYS[3], {}, 0, string.sub, struct.unpack, string.rep, 1
local all, others = ARGV[5], call('EXISTS', CLAIMS) == 1
local KEEP_LEAST_MS = KEEP_MS - math.floor(WINDOW_MS / 4)

for b = 4, #KEYS do
  local bucket, count, mine, taken, last = KEYS[b], tonumber(ARGV[b + 8]), {}, {}, 0
  local digests = { unpacked(rep('c16', count), all, at) }
  at, digests[count + 1] = digests[count + 1], nil
  local stored, claimed = call('HMGET', bucket, unpack(digests)), others and call('HMGET', CLAIMS, unpack(digests))
  for n = 1, count do
    local found, claim, told, becomes_ours = stored[n], claimed and claimed[n], 'N', true
    if found or claim then -- most keys are new
      if claim then
        found = sub(claim, 14)
      elseif tonumber(found) >= OLDEST then
        found = tonumber(found) >= NOW and DONE
      end
      told, becomes_ours = verdict(found)
    end
    answered = answered + 1
    verdicts[answered] = told
    if becomes_ours then
      mine[last + 1], mine[last + 2], last = digests[n], ID, last + 2
      if claim then taken[#taken + 1] = digests[n] end
    end
  end
  if #taken > 0 then call('HDEL', CLAIMS, unpack(taken)) end
  if last > 0 then
    call('HSET', bucket, unpack(mine))
    local left = call('PTTL', bucket)
    if left <= KEEP_LEAST_MS then
      local seen = left < 0 or sweep(bucket) -- below 0: made just now
      call('PEXPIRE', bucket, seen and KEEP_MS or string.format('%.0f', KEEP_LEAST_MS + 1))
    end
  end
end
return table.concat(verdicts)
