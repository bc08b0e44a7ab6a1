-- In front of every script of a session.
--   KEYS[1]  the shard's sessions: id -> "deadline:generation", the deadline in this server's milliseconds since 1970
--   ARGV[1]  the session that asks
--   ARGV[2]  its call generation
local SESSIONS, ME, GENERATION = KEYS[1], ARGV[1], tonumber(ARGV[2])

local time = redis.call('TIME')
local NOW = time[1] * 1000 + math.floor(time[2] / 1000)

-- A field that is absent or malformed is a dead session.
local function session(id)
  local field = redis.call('HGET', SESSIONS, id)
  local deadline, generation = string.match(field or '', '^(%d+):(%d+)$')
  return tonumber(deadline or 0), tonumber(generation)
end

local function put_session(id, deadline)
  redis.call('HSET', SESSIONS, id, string.format('%.0f:%.0f', deadline, GENERATION))
end

-- Looked up once a session in each script: the keys of a batch have few holders.
local judged = {}
local function live(id)
  if judged[id] == nil then judged[id] = session(id) > NOW end
  return judged[id]
end

-- The barrier against late requests: after a call without an answer a session goes on with a higher generation, and
-- what it sent before is refused from then on. It holds for dead sessions too, as long as their field is kept.
do
  local deadline, generation = session(ME)
  if generation and GENERATION < generation then return redis.status_reply('STALE') end
  if generation and GENERATION > generation then put_session(ME, deadline) end
end
