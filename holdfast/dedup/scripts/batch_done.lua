-- As in keys.lua, but not for a session. Reply: one character a key, D or -.
local replies = {}
for i = 1, COUNT do
  replies[i] = held(i) == DONE and 'D' or '-'
end
return table.concat(replies)
