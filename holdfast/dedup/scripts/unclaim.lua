-- As in keys.lua. Only what is still held by exactly this record is given back.
for i = 1, COUNT do
  if held(i) == OWN[i] then set_absent(i) end
end
save()
return redis.status_reply('OK')
