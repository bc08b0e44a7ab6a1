-- Between common.lua and each script about business keys. A key holds
--   "1"                   done. One of Redis' shared integers: a key that is done has no value object of its own
--   "C<session>|<token>"  claimed, by one record under one ownership: token = "epoch|offset|partition"
local DONE = '1'

-- What KEYS[2..] hold where they are held by the records that ask. `lines`: their tokens, one a line. One long argument,
-- because a client spends more on 500 short ones than this server on the whole call.
local function own_claims(lines)
  local prefix, claims = 'C' .. ME .. '|', {}
  for token in string.gmatch(lines, '[^\n]+') do claims[#claims + 1] = prefix .. token end
  return claims
end
