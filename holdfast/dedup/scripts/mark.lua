-- KEYS[2..] = positions; ARGV[3] = ms that a position is kept unused;
-- then per position: epoch, watermark, kind of mark, number of runs, and per run: first offset, length.
-- Kind: 0 = the owner's; 1 = a former owner's; 2 = the owner's, with all that it has marked since a reset. After a kind
-- of 2 follow the reset's epoch and number, and the end of the offsets that were known before the reset.
-- The session may be dead. Reply per position: the runs that are fenced, of each the first offset and its length.
take_from(4)

-- A former owner may mark what it handed over, each offset for itself, and never moves the watermark.
local function other_marks(p, epoch, runs)
  local holder, fenced, took = string.format('%s:%.0f', ME, epoch), {}, false
  for offset, by in pairs(p.running or {}) do
    if by == holder and among(runs, offset) then
      set_done(p, offset, offset + 1)
      p.running[offset], took = nil, true
    end
  end
  if took then save_running(p) end
  for _, run in ipairs(runs) do
    for _, left in ipairs(not_done(p, run.from, run.to)) do
      fenced[#fenced + 1], fenced[#fenced + 2] = left.from, left.to - left.from
    end
  end
  return fenced
end

local replies = {}
for i = 2, #KEYS do
  local p, epoch, watermark, whose = position(KEYS[i]), take(), take(), take()
  local since, number, again = 0, 0, 0
  if whose == 2 then since, number, again = take(), take(), take() end
  local runs = take_runs()
  if whose == 1 and was_lost(p, epoch) then
    owner_marks(p, -1, runs) -- the let_go was lost as well: the offsets are done, and no session owns the position
    replies[i - 1] = {}
  elseif owned(p, epoch) then
    if whose == 2 then stands_since(p, since, number, again) end
    owner_marks(p, watermark, runs)
    replies[i - 1] = {}
  else
    replies[i - 1] = other_marks(p, epoch, runs)
  end
  save_done(p)
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
end
return replies
