-- Between common.lua and the scripts about batch attempts. These calls are not a session's: ARGV[1] is empty.
--   KEYS[2]  hash of a sink: born = ms when its attempts began to be counted; number, session, query, batch, origin =
--            of the last attempt; last = the last finished attempt of all queries, "batch:number:session:query";
--            "f:<query>" = that of one query, "batch:number:session"; "o:<query>" = its origin, "k:<query>" = a print
--            of its keys; waits = the attempt that has the next turn, "batch:session:query"
--   KEYS[3]  hash of attempts, see keys.lua; an attempt's id is its number + 1, since 1 stands for a key that is done.
--            Its field last = the number given last, at = when, server = on which server. The hash never expires: two
--            attempts with one id would have each other's keys
--   ARGV[3]  ms that a sink is kept unused
--   ARGV[4]  the attempt's session, [5] = query, [6] = batch
local SINK, ATTEMPTS, BY, QUERY, BATCH = KEYS[2], KEYS[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

local function finished_of(query)
  local field = redis.call('HGET', SINK, 'f:' .. query)
  local batch, number, by = string.match(field or '', '^(%d+):(%d+):(.*)$')
  return tonumber(batch), tonumber(number), by
end

-- Reads an attempt's field. Returns: R or F, ms, session.
local function read(field)
  local state, ms, by = string.match(field or '', '^([RF])(%d+):(.*)$')
  return state, tonumber(ms), by
end
