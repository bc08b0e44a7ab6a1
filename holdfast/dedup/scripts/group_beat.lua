-- ARGV[4] = lease in ms. Reply: standing, and ms until the first lease of the other members ends (-1 = there is no
-- other); or LOST, UNKNOWN.
local refused = refusal()
if refused then return refused end
put_session(ME, NOW + ARGV[4])
local due = bury()
touch()
local reply = standing()
reply[4] = due
return reply
