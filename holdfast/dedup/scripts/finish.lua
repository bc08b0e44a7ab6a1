-- KEYS[2..] = business keys; ARGV[3] = ms for which they stay done; ARGV[4] = the tokens. Whether the session still
-- lives does not matter: a claim that nobody took over is still its own. Reply: one character a key, D F.
local verdicts = {}
for i, own in ipairs(own_claims(ARGV[4])) do
  local key = KEYS[i + 1]
  local held = redis.call('GET', key)
  if held == DONE then
    verdicts[i] = 'D'
  elseif held == own then
    redis.call('SET', key, DONE, 'PX', ARGV[3])
    verdicts[i] = 'D'
  else
    verdicts[i] = 'F'
  end
end
return table.concat(verdicts)
