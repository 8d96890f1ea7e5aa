-- List the windows whose estimates have not expired.
--
-- KEYS  windows of the survey (sorted by their expiry)

local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
