-- In front of what knows of digests and their buckets.
-- A small hash is one block of memory (listpack; 6.2: ziplist): a third of what a name of its own costs each key. A bucket
-- expires after its last field. What is past its time counts as absent, and is swept when the bucket is written.
local FULL = 128 -- fields; well below hash-max-listpack-entries, which is 512 where nobody has set it
local call = redis.call

-- Of what a bucket has: until when it is done; and the id, while that attempt is not finished.
-- To the end of that millisecond, as Redis does with its own keys: no key is done for less than was asked.
local OLDEST = 1000000000000 -- 2001: no id is as high
local function done_until(stored)
  local n = tonumber(stored or 0)
  if n >= OLDEST or n == 0 then return n end
  local by, till = attempt(stored)
  if by == DONE then return till end
  return 0, by and stored
end

-- Remove what is past its time; the work is bounded. Returns whether all was looked at.
local function sweep(bucket)
  local size, past = call('HLEN', bucket), {}
  local fields = call('HRANDFIELD', bucket, size > FULL and 16 or FULL, 'WITHVALUES')
  for n = 1, #fields, 2 do
    local till, id = done_until(fields[n + 1])
    if till < NOW and not id then past[#past + 1] = fields[n] end
  end
  if #past > 0 then call('HDEL', bucket, unpack(past)) end
  return size <= FULL
end
