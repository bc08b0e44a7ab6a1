-- Between keys.lua and what knows the layout. As in keys.lua, asked by nobody's session; each key once.
--   ARGV[8]  the attempt's session, [9] = its id, [10] = ms for which its claims are kept: the window and some more, for what
--            is finished needs no further word; [11] = the server's life in which the attempt began, as of server.lua
-- Reply: one character a key, N T D B F.
local BY, ID, KEEP_MS = ARGV[8], ARGV[9], ARGV[10]
if not live(BY) or attempt(ID) ~= BY or server() ~= ARGV[11] then return string.rep('F', COUNT) end

-- Of what is stored: what the attempt is told, and whether it claims the key.
local function verdict(stored)
  local found = meaning(stored)
  if not found then return 'N', true end
  if found == DONE then return 'D', false end
  if found == ID then return 'N', false end -- asked again: no answer, or a task that Spark runs again
  if holds(found) then return 'B', false end
  return 'T', true
end
