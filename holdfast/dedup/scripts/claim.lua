-- KEYS[2..] = business keys; ARGV[3] = ms after which a forgotten claim is garbage; ARGV[4] = the tokens.
-- Reply: one character a key, N D B F.
if not live(ME) then return string.rep('F', #KEYS - 1) end
local verdicts = {}
for i, own in ipairs(own_claims(ARGV[4])) do
  local key = KEYS[i + 1]
  local held = redis.call('GET', key)
  if held == DONE then
    verdicts[i] = 'D'
  elseif held == own then
    verdicts[i] = 'N' -- asked again after no answer
  elseif held and live(string.match(held, '^C([^|]*)|')) then
    verdicts[i] = 'B' -- also by this very session for another record: two records of one key are never both NEW
  else
    redis.call('SET', key, own, 'PX', ARGV[3])
    verdicts[i] = 'N'
  end
end
return table.concat(verdicts)
