-- KEYS[2..] = business keys; ARGV[3] = ms after which a forgotten claim is garbage; ARGV[4..] = the tokens.
-- A key holds "1" = done, or "C<session>|<token>". Reply: one character a key, N D B F.
if not live(ME) then return string.rep('F', #KEYS - 1) end
local garbage_ms, mine, verdicts = ARGV[3], 'C' .. ME .. '|', {}
for i = 2, #KEYS do
  local held, wanted = redis.call('GET', KEYS[i]), mine .. ARGV[i + 2]
  if held == '1' then
    verdicts[i - 1] = 'D'
  elseif held == wanted then
    verdicts[i - 1] = 'N' -- asked again after no answer
  elseif held and live(string.match(held, '^C([^|]*)|')) then
    verdicts[i - 1] = 'B' -- also by this very session for another record: two records of one key are never both NEW
  else
    redis.call('SET', KEYS[i], wanted, 'PX', garbage_ms)
    verdicts[i - 1] = 'N'
  end
end
return table.concat(verdicts)
