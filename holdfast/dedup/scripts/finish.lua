-- KEYS[2..] = business keys; ARGV[3] = ms for which they stay done; ARGV[4..] = the tokens. Whether the session still
-- lives does not matter: a claim that nobody took over is still its own. Reply: one character a key, D F.
-- "1" is one of Redis' shared integers: a key that is done holds no value object of its own.
local window_ms, mine, verdicts = ARGV[3], 'C' .. ME .. '|', {}
for i = 2, #KEYS do
  local held = redis.call('GET', KEYS[i])
  if held == '1' then
    verdicts[i - 1] = 'D'
  elseif held == mine .. ARGV[i + 2] then
    redis.call('SET', KEYS[i], '1', 'PX', window_ms)
    verdicts[i - 1] = 'D'
  else
    verdicts[i - 1] = 'F'
  end
end
return table.concat(verdicts)
