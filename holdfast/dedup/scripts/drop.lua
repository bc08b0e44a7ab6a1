-- KEYS[2..] = positions; ARGV[3] = ms that they are kept unused; then per position: epoch, the number of the reset, its
-- offset, and the end of the offsets that the client knows as done or running.
-- Afterwards all offsets below that offset are done, and none is running: a handed-over offset below it counts as done,
-- one from there on is void. A drop that is sent again changes nothing.
-- Reply per position: 'F', or the end of the offsets that were known, as `again` in positions.lua.
take_from(4)

local replies = {}
for i = 2, #KEYS do
  local p, epoch, number, offset, seen = position(KEYS[i]), take(), take(), take(), take()
  local mine = owned(p, epoch)
  if mine and is_new(p, epoch, number) then
    start_over(p, epoch, number, known_up_to(p, seen))
    redis.call('HSET', KEYS[i], 'owner', ME, 'w', string.format('%.0f', offset))
    redis.call('PEXPIRE', KEYS[i], ARGV[3])
  end
  replies[i - 1] = mine and redis.call('HGET', KEYS[i], 'again') or 'F'
end
return replies
