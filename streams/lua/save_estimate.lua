-- Store the estimate of a window if its lock is still ours, and list the window.
--
-- KEYS  lock, estimate, windows of the survey (sorted by their expiry)
-- ARGV  secret of the lock, the estimate, expiry (ms since the epoch), window
-- Reply 1 if it was stored.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
redis.call('SET', KEYS[2], ARGV[2])
redis.call('PEXPIREAT', KEYS[2], ARGV[3])
redis.call('ZADD', KEYS[3], ARGV[3], ARGV[4])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
local last = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')
if last[2] then
  redis.call('PEXPIREAT', KEYS[3], string.format('%.0f', tonumber(last[2])))
end
return 1
