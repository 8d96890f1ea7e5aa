-- List workers, each with the age of its last heartbeat in ms.
--
-- KEYS  the workers by the time of their last heartbeat

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local reply = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for age = 2, #reply, 2 do
  reply[age] = string.format('%.0f', now - tonumber(reply[age]))
end
return reply
