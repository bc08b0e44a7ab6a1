-- ARGV[4], [5] = view and stamp that were looked at; [6] = the new plan's stamp, [7] = the plan; without these two the
-- old plan stays, because it still fits.
-- Reply: standing, LOST, UNKNOWN, BEHIND.
local refused = refusal()
if refused then return refused end
if not as_looked_at() then return redis.status_reply('BEHIND') end
if ARGV[6] then set_plan(ARGV[6], ARGV[7]) end
redis.call('HSET', HEAD, 'planned', ARGV[4])
touch()
return standing()
