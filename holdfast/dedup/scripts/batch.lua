-- Between common.lua and the scripts about batch attempts, which nobody's session asks: ARGV[1] is empty.
--   KEYS[2]  hash of a sink: born = ms when its attempts began to be counted; number, session, query, batch, origin of the
--            last one; last = what was finished last, and "f:<query>" of a query: "batch:number:session", in `last` with ":query"
--            behind; "o:<query>" = the origin of what a query has finished last, "k:<query>" = a print of its keys; waits = who has
--            the next turn, "batch:session:query"
--   KEYS[3]  hash of attempts, see keys.lua; an attempt's id is its number + 1, for 1 is what a key holds that is done. It has
--            the number given last too, and never expires: two attempts of one id would have each other's keys; and at = when
--            that was, server = by which server
--   ARGV[3]  ms that a sink is kept unused
--   ARGV[4]  the attempt's session, [5] = query, [6] = batch
local SINK, ATTEMPTS, BY, QUERY, BATCH = KEYS[2], KEYS[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

local function finished_of(query)
  local field = redis.call('HGET', SINK, 'f:' .. query)
  local batch, number, by = string.match(field or '', '^(%d+):(%d+):(.*)$')
  return tonumber(batch), tonumber(number), by
end

-- Of what an attempt's field says: R or F, ms, session.
local function read(field)
  local state, ms, by = string.match(field or '', '^([RF])(%d+):(.*)$')
  return state, tonumber(ms), by
end
