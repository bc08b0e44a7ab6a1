-- ARGV[4], [5] = view and stamp that were looked at; [6] = the new plan's stamp, [7] = the plan; or none of the four.
-- Reply: standing, BEHIND.
if redis.call('HEXISTS', MEMBERS, ME) == 0 then
  if live(ME) then put_session(ME, NOW) end
  return standing()
end
if ARGV[4] and not as_looked_at() then return redis.status_reply('BEHIND') end
put_session(ME, NOW) -- dead from now on
redis.call('HDEL', MEMBERS, ME)
changed()
if ARGV[4] then
  set_plan(ARGV[6], ARGV[7])
  redis.call('HSET', HEAD, 'planned', string.format('%.0f', number('view')))
end
touch()
return standing()
