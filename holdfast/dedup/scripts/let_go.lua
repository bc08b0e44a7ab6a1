-- KEYS[2..] = positions; ARGV[3] = ms that a position is kept unused;
-- then per position: epoch (0 = whichever), the epoch with which the unacked offsets will be marked or released (0 =
-- that of the ownership), a watermark (-1 = none), the runs that the owner has marked, the reset that these marks
-- follow (its epoch and number, and the end of the offsets that were known before it), the number of unacked offsets,
-- and these offsets.
take_from(4)

for i = 2, #KEYS do
  local p, epoch, known_as, watermark, runs = position(KEYS[i]), take(), take(), take(), take_runs()
  local since, number, again, count = take(), take(), take(), take()
  local let = epoch == 0 and p.owner == ME or owned(p, epoch)
  local holder = string.format('%s:%.0f', ME, known_as > 0 and known_as or p.epoch)
  if let then
    stands_since(p, since, number, again)
    owner_marks(p, watermark, runs)
  end
  p.running = p.running or {}
  for _ = 1, count do
    local offset = take()
    if let and not is_done(p, offset) then p.running[offset] = holder end
  end
  if let then
    save_done(p)
    save_running(p)
    redis.call('HDEL', KEYS[i], 'owner')
    redis.call('PEXPIRE', KEYS[i], ARGV[3])
  end
end
return redis.status_reply('OK')
