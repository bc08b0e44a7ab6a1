-- Between keys.lua and the part that knows the layout. As in keys.lua, but not for a session; each key once.
--   ARGV[8]  the attempt's session, [9] = its id, [10] = ms for which its claims are kept: the window and some more,
--            because claims become done with the attempt, without a further write; [11] = the server's id when the
--            attempt began, as of server.lua
-- Reply: one character a key, N T D B F; T = taken over from a dead session or attempt.
local BY, ID, KEEP_MS = ARGV[8], ARGV[9], ARGV[10]
if not live(BY) or attempt(ID) ~= BY or server() ~= ARGV[11] then return string.rep('F', COUNT) end

-- Returns for a key's stored value: the attempt's verdict, and whether the attempt claims the key.
local function verdict(stored)
  local found = meaning(stored)
  if not found then return 'N', true end
  if found == DONE then return 'D', false end
  if found == ID then return 'N', false end -- repeated after no answer, or by a task that Spark runs again
  if holds(found) then return 'B', false end
  return 'T', true
end
