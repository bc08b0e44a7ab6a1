-- Read chunks of a position that is too long for one reply. KEYS[2] = the position; ARGV[3] = epoch; then per run of
-- chunks: the number of the first, and how many. Without any run: the names of the position's fields.
-- Reply: 'F', or the chunks' bytes one after the other (zeros for an absent chunk), or the fields' names.
local p = position(KEYS[2])
if not owned(p, tonumber(ARGV[3])) then return 'F' end
if #ARGV == 3 then return table.concat(redis.call('HKEYS', KEYS[2]), ' ') end

local bytes = {}
for at = 4, #ARGV, 2 do
  local first = tonumber(ARGV[at])
  each_names(first, first + ARGV[at + 1] - 1, function(_, names)
    for i, found in ipairs(redis.call('HMGET', KEYS[2], unpack(names))) do bytes[#bytes + 1] = found or NOTHING end
  end)
end
return table.concat(bytes)
