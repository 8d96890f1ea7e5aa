-- Put windows into the recompute queue. A score is the time in microseconds, and always higher than the window's last one.
--
-- KEYS  the queue
-- ARGV  lifetime of the key (ms), members...

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
for member = 2, #ARGV do
  local last = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[member]) or '0')
  redis.call('ZADD', KEYS[1], string.format('%.0f', math.max(now, last + 1)), ARGV[member])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return #ARGV - 1
