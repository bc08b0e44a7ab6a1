-- ARGV[7] = ms after which a dead attempt is garbage, [8] = origin, [9] = the session of a finished attempt of the same
-- batch number beside which this one begins, or ''.
-- Reply: { 'BEGUN', number, last, born, this server's life }, { 'FINISHED', number, session, born, origin, 1 if its keys are
-- kept, their print },
-- { 'BEHIND', batch },
-- { 'ELSEWHERE', query, batch, ms left of its lease }, F.
local batch, number, by = finished_of(QUERY)
local born = tonumber(redis.call('HGET', SINK, 'born') or NOW)
if batch and batch > BATCH then return { 'BEHIND', batch } end
if batch == BATCH then
  local state, until_ms = read(redis.call('HGET', ATTEMPTS, string.format('%.0f', number + 1)))
  local kept = state == 'F' and until_ms >= NOW
  if by ~= ARGV[9] or not kept then
    local more = redis.call('HMGET', SINK, 'o:' .. QUERY, 'k:' .. QUERY)
    return { 'FINISHED', number, by, born, more[1] or '', kept and 1 or 0, more[2] or '' }
  end
end
if not live(BY) then return redis.status_reply('F') end
local last = redis.call('HGET', SINK, 'last') or ''
local now = redis.call('HMGET', SINK, 'session', 'query', 'batch', 'number')
if now[1] == BY then return { 'BEGUN', tonumber(now[4]), last, born, server() } end -- asked again after no answer
local of, waiting, next = string.match(redis.call('HGET', SINK, 'waits') or '', '^(%d+):([^:]*):(.*)$')
local turn_is_anothers = next and next ~= QUERY and live(waiting)
if now[1] and live(now[1]) then
  local deadline, generation = session(now[1])
  if now[2] ~= QUERY then
    if not turn_is_anothers then redis.call('HSET', SINK, 'waits', string.format('%.0f:', BATCH) .. BY .. ':' .. QUERY) end
    return { 'ELSEWHERE', now[2], tonumber(now[3]), deadline - NOW }
  end
  redis.call('HSET', SESSIONS, now[1], string.format('%.0f:%.0f', NOW, generation))
elseif turn_is_anothers then
  local deadline = session(waiting)
  return { 'ELSEWHERE', next, tonumber(of), deadline - NOW }
end
if next == QUERY then redis.call('HDEL', SINK, 'waits') end
-- Looks at a few attempts, and removes those whose keys are past their window, and dead ones.
local some = redis.call('HRANDFIELD', ATTEMPTS, 16, 'WITHVALUES')
for n = 1, #some, 2 do
  local state, ms, of = read(some[n + 1])
  if state == 'F' and ms < NOW or state == 'R' and ms + ARGV[7] < NOW and not live(of) then
    redis.call('HDEL', ATTEMPTS, some[n])
  end
end
number = rise(ATTEMPTS, 'last') -- no fence is given twice, since each begin takes a millisecond or more
redis.call('HSET', ATTEMPTS, string.format('%.0f', number + 1), string.format('R%.0f:%s', NOW, BY))
redis.call('HSET', SINK, 'number', number, 'session', BY, 'query', QUERY, 'batch', string.format('%.0f', BATCH), 'born',
  string.format('%.0f', born), 'origin', ARGV[8])
redis.call('PEXPIRE', SINK, ARGV[3])
return { 'BEGUN', number, last, born, server() }
