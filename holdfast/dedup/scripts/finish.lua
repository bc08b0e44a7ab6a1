-- As in keys.lua. Whether the session still lives does not matter: a claim that nobody took over is still its own.
-- Reply: one character a key, D F.
local verdicts = {}
for i = 1, COUNT do
  local found = held(i)
  if found == OWN[i] then set_done(i) end
  verdicts[i] = (found == OWN[i] or found == DONE) and 'D' or 'F'
end
save()
return table.concat(verdicts)
