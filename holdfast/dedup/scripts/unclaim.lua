-- As in keys.lua. Gives back only keys that exactly this record still holds.
for i = 1, COUNT do
  if held(i) == OWN[i] then set_absent(i) end
end
save()
return redis.status_reply('OK')
