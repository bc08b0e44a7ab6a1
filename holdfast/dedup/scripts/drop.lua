-- KEYS[2..] = positions; ARGV[3] = ms that they are kept unused; then per position: epoch, the number of the reset, its
-- offset, and up to where the client knows of offsets as done or running.
-- Done is then all below, and nothing is running: what was handed over below is done, what was from there on is void.
-- Reply per position: 'F', or up to where offsets were known, as `again` of positions.lua. One that is said again changes nothing.
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
