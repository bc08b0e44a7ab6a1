-- As in keys.lua. Whether the session still lives does not matter where the claim is there: nobody took it over. Where it
-- is absent and the session lives, a failover has lost it: nobody can have taken it over either. Reply: one character a
-- key, D F.
local verdicts = {}
for i = 1, COUNT do
  local found = held(i)
  local ours = found == OWN[i] or not found and live(ME)
  if ours then set_done(i) end
  verdicts[i] = (ours or found == DONE) and 'D' or 'F'
end
save()
return table.concat(verdicts)
