-- Note a source among all whose reports were ever counted under one topic name, with the time when it first was.
--
-- KEYS  the sources
-- ARGV  cluster and topic, lifetime of the key (ms)

if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
  redis.call('DEL', KEYS[1])
end
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
redis.call('ZADD', KEYS[1], 'NX', now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
