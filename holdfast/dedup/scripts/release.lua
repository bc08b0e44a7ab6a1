-- KEYS[2..] = positions, one a record; from ARGV[3] on, per record: offset, epoch.
for i = 2, #KEYS do
  local p = position(KEYS[i])
  local offset, epoch = tonumber(ARGV[2 * i - 1]), ARGV[2 * i]
  if p.running and p.running[offset] == ME .. ':' .. epoch then
    p.running[offset] = nil
    save_running(p)
  end
end
return redis.status_reply('OK')
