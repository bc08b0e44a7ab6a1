-- Between common.lua and each script about positions. One hash a partition:
--   epoch    changes of ownership so far
--   born     born + epoch is the owner's fence: this server's milliseconds since 1970, or more. It never falls
--   owner    a session; absent = none
--   w        watermark: every offset below is done; absent = 0, and no owner has stated the group's offset
--   running  "offset=session:epoch ...": handed over while in its owner's hands; absent = none. Never a done offset
--   again    after a reset: offsets below were done or running before it; absent = there was none
--   since    "epoch:number": the last reset; epoch = of the ownership that made it, number = that session's count of
--            resets; absent = there was none
--   b:<n>    a bitmap of 32 bytes: of the offsets 256*n .. 256*n+255, those from the watermark on that are done
-- Offsets are exact up to 2^53; the client refuses higher ones.
-- There may be tens of thousands of chunks above a watermark that stands still. No script walks over all of them: Redis
-- answers no other client meanwhile. Long positions take several calls, of LONG chunks at most.
local WIDTH, LONG = 256, 4096
local NOTHING, FULL = string.rep('\0', WIDTH / 8), string.rep('\255', WIDTH / 8)
local floor, bor, lshift = math.floor, bit.bor, bit.lshift

-- As many fields as fit on Lua's stack, with room to spare.
local AT_ONCE = 1000

-- Walks over chunks first .. last, AT_ONCE at a time: calls `take` with the first one's number, and all names.
local function each_names(first, last, take)
  while first <= last do
    local names = {}
    for n = first, math.min(last, first + AT_ONCE - 1) do names[#names + 1] = string.format('b:%.0f', n) end
    take(first, names)
    first = first + #names
  end
end

local function position(key)
  local epoch, owner, w, running = unpack(redis.call('HMGET', key, 'epoch', 'owner', 'w', 'running'))
  local p = { key = key, epoch = tonumber(epoch or 0), owner = owner, w = tonumber(w or 0), begun = w, chunks = {}, changed = {} }
  if running then
    p.running = {}
    for offset, holder in string.gmatch(running, '(%d+)=(%S+)') do p.running[tonumber(offset)] = holder end
  end
  return p
end

-- The last reset, as its epoch and number.
local function last_reset(p)
  local epoch, number = string.match(redis.call('HGET', p.key, 'since') or '', '^(%d+):(%d+)$')
  return tonumber(epoch or 0), tonumber(number or 0)
end

-- Whether this reset is later than the last one that the position has.
local function is_new(p, epoch, number)
  local last, of_it = last_reset(p)
  return epoch > last or epoch == last and number > of_it
end

-- The end of all offsets that were ever known as done or running, before a reset or now. `seen`: the same as the client
-- knows it, taken for a position that is too long to be looked through; 0 = the client does not know.
local function known_up_to(p, seen)
  local top = math.max(p.w, tonumber(redis.call('HGET', p.key, 'again') or 0))
  for offset in pairs(p.running or {}) do top = math.max(top, offset + 1) end
  if seen > 0 and redis.call('HLEN', p.key) > LONG then return math.max(top, seen) end
  local last = -1
  for _, field in ipairs(redis.call('HKEYS', p.key)) do
    last = math.max(last, tonumber(string.match(field, '^b:(%d+)$') or -1))
  end
  if (last + 1) * WIDTH > top then
    local bytes = { string.byte(redis.call('HGET', p.key, string.format('b:%.0f', last)), 1, -1) }
    for i = WIDTH - 1, 0, -1 do
      if bit.band(bytes[floor(i / 8) + 1], lshift(1, i % 8)) ~= 0 then return math.max(top, last * WIDTH + i + 1) end
    end
  end
  return top
end

-- Reset: forget all but `epoch` and `born`, so that neither the epoch nor the fence falls.
local function start_over(p, epoch, number, again)
  local born = redis.call('HGET', p.key, 'born')
  redis.call('UNLINK', p.key)
  redis.call('HSET', p.key, 'epoch', string.format('%.0f', p.epoch), 'again', string.format('%.0f', again),
    'since', string.format('%.0f:%.0f', epoch, number))
  if born then redis.call('HSET', p.key, 'born', born) end
  p.w, p.begun, p.running, p.chunks, p.changed = 0, false, nil, {}, {}
end

-- An epoch never falls: where ours is higher than the one in the position, a failover has lost our acquire. If our
-- session lives, and no other living session is the owner, no other session has taken the position over.
local function was_lost(p, epoch)
  return epoch > p.epoch and live(ME) and not (p.owner and p.owner ~= ME and live(p.owner))
end

-- Whether we own the position. If a failover has lost our acquire, it becomes ours again.
local function owned(p, epoch)
  if p.owner == ME and p.epoch == epoch then return true end
  if not was_lost(p, epoch) then return false end
  p.owner, p.epoch = ME, epoch
  -- Where the server has lost all data: the next fence is above that of this epoch, and no higher than the clock.
  redis.call('HSETNX', p.key, 'born', string.format('%.0f', NOW - epoch))
  redis.call('HSET', p.key, 'owner', ME, 'epoch', string.format('%.0f', epoch))
  return true
end

-- The chunk's bytes as a table of 32 numbers.
local function chunk(p, n)
  local bytes = p.chunks[n]
  if not bytes then
    local stored = redis.call('HGET', p.key, string.format('b:%.0f', n)) or NOTHING
    bytes = { string.byte(stored, 1, -1) }
    p.chunks[n] = bytes
  end
  return bytes
end

local function is_done(p, offset)
  if offset < p.w then return true end
  local n = floor(offset / WIDTH)
  local i = offset - n * WIDTH
  return bit.band(chunk(p, n)[floor(i / 8) + 1], lshift(1, i % 8)) ~= 0
end

-- The runs of offsets from .. to - 1 that are not done.
local function not_done(p, from, to)
  local left = {}
  local function add(first, after)
    if #left > 0 and left[#left].to == first then left[#left].to = after else left[#left + 1] = { from = first, to = after } end
  end
  from = math.max(from, p.w)
  while from < to do
    local n = floor(from / WIDTH)
    local bytes, base, stop = chunk(p, n), n * WIDTH, math.min(to, (n + 1) * WIDTH)
    while from < stop do
      local i = from - base
      local byte = bytes[floor(i / 8) + 1]
      -- A whole byte at once, if all of its offsets are done, or none.
      local after = (byte == 0 or byte == 255) and math.min(stop, from - i % 8 + 8) or from + 1
      if bit.band(byte, lshift(1, i % 8)) == 0 then add(from, after) end
      from = after
    end
  end
  return left
end

-- Adds the offsets of `piece(n)`, the bytes of a chunk, to each of the chunks first .. last. A chunk that stays the
-- same is not written: an owner sends everything again when it lets go, and that need not go to replicas and to the
-- append-only file.
local function add_chunks(p, first, last, piece)
  each_names(first, last, function(from, names)
    local changed, found = {}, redis.call('HMGET', p.key, unpack(names))
    for i, name in ipairs(names) do
      local n = from + i - 1
      local stored, bits = found[i], piece(n)
      if stored and stored ~= bits and stored ~= FULL and bits ~= FULL then
        local both = { string.byte(stored, 1, -1) }
        for at = 1, WIDTH / 8 do both[at] = bor(both[at], string.byte(bits, at)) end
        bits = string.char(unpack(both))
      end
      if stored ~= bits and stored ~= FULL and bits ~= NOTHING then
        changed[#changed + 1], changed[#changed + 2] = name, bits
      end
      p.chunks[n], p.changed[n] = nil, nil
    end
    for i = 1, #changed, AT_ONCE do
      redis.call('HSET', p.key, unpack(changed, i, math.min(#changed, i + AT_ONCE - 1)))
    end
  end)
end

local function full() return FULL end

-- Marks the offsets from .. to - 1 as done.
local function set_done(p, from, to)
  local first, last = math.ceil(from / WIDTH), floor(to / WIDTH) - 1
  if first <= last then add_chunks(p, first, last, full) end
  while from < to do
    local n = floor(from / WIDTH)
    if n >= first and n <= last then
      from = (last + 1) * WIDTH
    else
      local bytes, base, stop = chunk(p, n), n * WIDTH, math.min(to, (n + 1) * WIDTH)
      for i = from - base, stop - base - 1 do
        local at = floor(i / 8) + 1
        bytes[at] = bor(bytes[at], lshift(1, i % 8))
      end
      p.changed[n] = true
      from = stop
    end
  end
end

-- Raises the watermark, and removes the chunks that lie wholly below it. The work is bounded by what is stored: after a
-- leap of the watermark the fields are listed, instead of counting through the offsets that it leapt over. A leap over
-- more than LONG chunks is made in part: a lower watermark is true too, and the next mark raises it further.
local function raise_watermark(p, w)
  local first, passed, stored = floor(p.w / WIDTH), floor(w / WIDTH), redis.call('HLEN', p.key)
  if passed - first > LONG and stored > LONG then
    passed = first + LONG
    w = passed * WIDTH
  end
  if passed - first <= stored then
    each_names(first, passed - 1, function(_, names) redis.call('HDEL', p.key, unpack(names)) end)
  else
    for _, field in ipairs(redis.call('HKEYS', p.key)) do
      local n = tonumber(string.match(field, '^b:(%d+)$'))
      if n and n < passed then redis.call('HDEL', p.key, field) end
    end
  end
  redis.call('HSET', p.key, 'w', string.format('%.0f', w))
  p.w = w
end

local function save_running(p)
  local parts = {}
  for offset, holder in pairs(p.running) do parts[#parts + 1] = string.format('%.0f=%s', offset, holder) end
  if #parts == 0 then
    redis.call('HDEL', p.key, 'running')
  else
    table.sort(parts)
    redis.call('HSET', p.key, 'running', table.concat(parts, ' '))
  end
end

local function save_done(p)
  for n in pairs(p.changed) do
    redis.call('HSET', p.key, string.format('b:%.0f', n), string.char(unpack(p.chunks[n])))
  end
end

local function among(runs, offset)
  for _, run in ipairs(runs) do
    if offset >= run.from and offset < run.to then return true end
  end
  return false
end

-- Removes offsets that are done from `running`.
local function end_running(p)
  if p.running then
    for offset in pairs(p.running) do
      if is_done(p, offset) then p.running[offset] = nil end
    end
    save_running(p)
  end
end

-- Applies a mark of the owner: all of its offsets are done. A watermark of 0 states the group's offset too; -1 = none
-- is stated.
local function owner_marks(p, watermark, runs)
  if watermark > p.w or watermark == 0 and not p.begun then raise_watermark(p, watermark) end
  for _, run in ipairs(runs) do set_done(p, math.max(run.from, p.w), run.to) end
  end_running(p)
end

-- Goes before a mark that holds all that its owner has marked since a reset. If a failover has lost the reset, the
-- position is reset here: otherwise the mark would be added to what was done before the reset.
local function stands_since(p, epoch, number, again)
  if is_new(p, epoch, number) then
    start_over(p, epoch, number, math.max(known_up_to(p, again), again))
    redis.call('HSET', p.key, 'owner', ME)
  end
end

-- Reads the script's arguments one after the other, as numbers.
local at
local function take_from(first) at = first end

local function take()
  local value = tonumber(ARGV[at])
  at = at + 1
  return value
end

-- Reads the number of runs, and of each run its first offset and its length.
local function take_runs()
  local runs = {}
  for r = 1, take() do
    local from = take()
    runs[r] = { from = from, to = from + take() }
  end
  return runs
end
