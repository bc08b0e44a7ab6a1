-- In front of the parts that know digests and their buckets.
-- A small hash is one block of memory (listpack; 6.2: ziplist): a third of what a Redis key for each business key
-- costs. A bucket expires after its last field. A field whose time has passed counts as absent, and is swept when the
-- bucket is written.
local FULL = 128 -- fields; well below hash-max-listpack-entries, which is 512 by default
local call = redis.call

-- Reads a field of a bucket. Returns until when its key is done (0 = it is not), and the id of the attempt that has
-- claimed it, while that attempt has not finished. A key is done to the end of that millisecond, as Redis does with its
-- own keys: no key is done for less than was asked.
local OLDEST = 1000000000000 -- 2001: no id is as high
local function done_until(stored)
  local n = tonumber(stored or 0)
  if n >= OLDEST or n == 0 then return n end
  local by, till = attempt(stored)
  if by == DONE then return till end
  return 0, by and stored
end

-- Removes fields whose time has passed; the work is bounded. Returns whether all fields were looked at.
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
