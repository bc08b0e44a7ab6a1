-- Between common.lua and each script about business keys; keys_plain.lua or keys_hashed.lua follows, and gives:
--   held(i)             what item i of the batch holds: DONE, OWN[i], another's claim, or false
--   set_claimed(i)      the record has claimed it
--   set_done(i)         of an item that holds OWN[i]
--   set_absent(i)
--   left_ms(i)          of an item that is done: for how long it stays so
--   other(i)            the i-th key after those of the layout
--   set_result(i, text) to be kept at other(i) for as long as the item is done
--   save()              last: what was set may have waited, to be written at once
-- A claim is "C<session>|<token>": one record under one ownership, token = "epoch|offset|partition"; or the id of a batch
-- attempt, a whole number from 2 on.
--   KEYS[2]  the shard's batch attempts: id -> "R<since>:<session>" while it runs, "F<until>:<session>" finished, both in this
--            server's milliseconds since 1970; what it has claimed is done until then
--   ARGV[3]  number of items
--   ARGV[4]  the records that ask; '' = none asks. Lines: the number of ownerships; epoch and partition of each; the
--            offset of each item. Then two bytes an item: the number of its ownership, from 0 on. One argument, because
--            a client spends more on 500 short ones than this server on the whole call
--   ARGV[5]  as keys_plain.lua or keys_hashed.lua says
--   ARGV[6]  ms after which a forgotten claim is garbage
--   ARGV[7]  ms for which a key stays done
--   ARGV[8..]  the script's own
local DONE = '1'
local COUNT, GARBAGE_MS, WINDOW_MS = tonumber(ARGV[3]), tonumber(ARGV[6]), tonumber(ARGV[7])
local OWN = {}
if ARGV[4] ~= '' then
  local told, line, byte = ARGV[4], string.gmatch(ARGV[4], '[^\n]+'), string.byte
  local before, behind, at = {}, {}, #ARGV[4] - 2 * COUNT
  for n = 1, tonumber(line()) do
    local epoch, partition = string.match(line(), '^(%S+) (.*)$')
    before[n], behind[n] = 'C' .. ME .. '|' .. epoch .. '|', '|' .. partition
  end
  for i = 1, COUNT do
    local high, low = byte(told, at + 2 * i - 1, at + 2 * i)
    local n = 256 * high + low + 1
    OWN[i] = before[n] .. line() .. behind[n]
  end
end

-- Returns for a batch attempt's id: its session, or DONE and until when; nil = it is not known any more. Looked up once
-- an id in each script.
local ATTEMPTS, told = KEYS[2], {}
local function attempt(id)
  local known = told[id]
  if not known then
    local state, ms, by = string.match(redis.call('HGET', ATTEMPTS, id) or '', '^([RF])(%d+):(.*)$')
    known = { state == 'F' and DONE or by, tonumber(ms) }
    if state == 'F' and known[2] < NOW then known = {} end
    told[id] = known
  end
  return known[1], known[2]
end

-- What a key holds, given its stored value: for an attempt's id, DONE once that attempt has finished, or nothing once
-- it is not known any more.
local function meaning(stored)
  if not stored or stored == DONE or string.byte(stored) == 67 then return stored end -- 67 = C
  local by = attempt(stored)
  return by == DONE and DONE or by and stored
end

-- Whether a claim's session lives.
local function holds(claim)
  return live(string.match(claim, '^C([^|]*)|') or attempt(claim))
end

-- Whether the record that asks may finish the key. While its claim is there, no other record has taken the key over, so
-- its session may be dead. If its claim is not there though its session lives, a failover has lost the claim, and may
-- have brought back the claim of a dead session: no living session can have taken the key over.
local function to_finish(i, found)
  if found == OWN[i] then return true end
  return found ~= DONE and live(ME) and not (found and holds(found))
end
