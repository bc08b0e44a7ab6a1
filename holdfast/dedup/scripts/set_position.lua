-- Set a position to a watermark. KEYS[2] = the position; ARGV[3] = ms that it is kept unused, ARGV[4] = the watermark,
-- ARGV[5] = the end of the offsets that the client knows as done. Afterwards the position has no owner, no offset above
-- the watermark is done, and none is running. The epoch stays, so that epochs never fall. Reply: OK, or W = its owner
-- lives.
local p = position(KEYS[2])
if p.owner and live(p.owner) then return 'W' end
local again = known_up_to(p, tonumber(ARGV[5]))
local epoch, number = last_reset(p)
start_over(p, p.epoch, epoch == p.epoch and number + 1 or 1, again)
redis.call('HSET', KEYS[2], 'w', ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 'OK'
