-- As in keys.lua. Reply: one character a key, D F.
local verdicts = {}
for i = 1, COUNT do
  local found = held(i)
  local ours = to_finish(i, found)
  if ours then set_done(i) end
  verdicts[i] = (ours or found == DONE) and 'D' or 'F'
end
save()
return table.concat(verdicts)
