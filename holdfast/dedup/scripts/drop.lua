-- KEYS[2..] = positions; ARGV[3] = ms that they are kept unused; then per position: epoch, the offset of the reset,
-- and up to where the client knows of offsets as done or running.
-- Done is then all below, and nothing is running: what was handed over below is done, what was from there on is void.
-- Reply per position: 'D', or 'F'.
take_from(4)

local replies = {}
for i = 2, #KEYS do
  local p, epoch, offset, seen = position(KEYS[i]), take(), take(), take()
  local mine = owned(p, epoch)
  if mine then
    local again = known_up_to(p, seen)
    start_over(p)
    redis.call('HSET', KEYS[i], 'owner', ME, 'w', string.format('%.0f', offset), 'again', string.format('%.0f', again))
    redis.call('PEXPIRE', KEYS[i], ARGV[3])
  end
  replies[i - 1] = mine and 'D' or 'F'
end
return replies
