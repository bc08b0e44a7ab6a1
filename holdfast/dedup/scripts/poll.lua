-- KEYS[2..] = positions; from ARGV[3] on, per position: epoch, number of offsets, the offsets.
-- Reply per position: 'F', or one character an offset: d = done, y = yours, - = still being worked on.
take_from(3)

local replies = {}
for i = 2, #KEYS do
  local p, epoch, count = position(KEYS[i]), take(), take()
  local mine, states, took = owned(p, epoch), {}, false
  for n = 1, count do
    local offset = take()
    if mine then
      local holder = p.running and p.running[offset]
      if is_done(p, offset) then
        states[n] = 'd'
      elseif holder and live(string.match(holder, '^[^:]*')) then
        states[n] = '-'
      else
        states[n] = 'y'
        if holder then p.running[offset], took = nil, true end
      end
    end
  end
  if took then save_running(p) end
  replies[i - 1] = mine and table.concat(states) or 'F'
end
return replies
