-- KEYS[2..] = positions, one a record; from ARGV[3] on, per record: offset, epoch. Each position is read and written once.
local positions = {}
for i = 2, #KEYS do
  local p = positions[KEYS[i]] or position(KEYS[i])
  positions[KEYS[i]] = p
  local offset, epoch = tonumber(ARGV[2 * i - 1]), ARGV[2 * i]
  if p.running and p.running[offset] == ME .. ':' .. epoch then
    p.running[offset], p.released = nil, true
  end
end
for _, p in pairs(positions) do
  if p.released then save_running(p) end
end
return redis.status_reply('OK')
