-- Replace the heartbeat of a worker, and forget workers that have sent none for long, by the time here.
--
-- KEYS  the heartbeat, the workers by the time of their last one
-- ARGV  the heartbeat, name of the worker, how long heartbeats are kept (ms)

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - tonumber(ARGV[3])))
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
