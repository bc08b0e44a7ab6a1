-- Forget a group that has no living member. Reply: 1, 0 = it has one.
if bury() >= 0 then return 0 end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return 1
