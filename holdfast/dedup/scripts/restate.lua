-- The owner sends again what it has marked, if that is too long for one call. KEYS[2] = the position; ARGV[3] = ms that
-- it is kept unused; ARGV[4] = epoch; ARGV[5..7] = the reset that these marks follow: its epoch and number, and the end
-- of the offsets that were known before it; then in turn: the number of a chunk, and the bytes of that chunk and of
-- those that follow it.
-- Reply: 'D', or 'F' = another session owns the position.
local p = position(KEYS[2])
if not owned(p, tonumber(ARGV[4])) then return 'F' end
stands_since(p, tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]))
for at = 8, #ARGV, 2 do
  local first, bits = tonumber(ARGV[at]), ARGV[at + 1]
  local size = WIDTH / 8
  -- Without chunks that lie wholly below the watermark: they would never be removed.
  add_chunks(p, math.max(first, floor(p.w / WIDTH)), first + #bits / size - 1, function(n)
    return string.sub(bits, (n - first) * size + 1, (n - first + 1) * size)
  end)
end
end_running(p)
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 'D'
