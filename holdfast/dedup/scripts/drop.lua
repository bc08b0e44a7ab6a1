-- KEYS[2] = a position; ARGV[3] = ms that it is kept unused, ARGV[4] = epoch, ARGV[5] = the offset of the reset.
-- Done is then all below, and nothing is running: what was handed over below is done, what was from there on is void.
local p = position(KEYS[2])
if not owned(p, tonumber(ARGV[4])) then return 'F' end
local again = known_up_to(p)
start_over(p)
redis.call('HSET', KEYS[2], 'owner', ME, 'w', ARGV[5], 'again', string.format('%.0f', again))
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 'D'
