-- ARGV[4] = lease in ms. Reply: standing and ms until the first lease of the others ends, -1 = no others; or LOST, UNKNOWN.
local refused = refusal()
if refused then return refused end
put_session(ME, NOW + ARGV[4])
local due = bury()
touch()
local reply = standing()
reply[4] = due
return reply
