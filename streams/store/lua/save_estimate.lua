-- Store the estimate of a window if the secret still holds its lock, list the window, and add a point to its history.
--
-- KEYS  lock, estimate, windows of the survey (sorted by their expiry), estimate history
-- ARGV  secret of the lock, the estimate, expiry (ms since the epoch), window, point (time in ms, a blank, anything;
--       empty: none), points to keep
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
if ARGV[5] ~= '' then
  local points = redis.call('RPUSH', KEYS[4], ARGV[5])
  redis.call('PEXPIREAT', KEYS[4], ARGV[3])
  if points > tonumber(ARGV[6]) then
    local times = {}
    for i, point in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do
      times[i] = tonumber(string.match(point, '^%d+'))
    end
    local drop, least = 2, math.huge
    for i = 2, points - 1 do
      local gap = times[i + 1] - times[i - 1]
      if gap < least then
        drop, least = i, gap
      end
    end
    redis.call('LSET', KEYS[4], drop - 1, '')
    redis.call('LREM', KEYS[4], 1, '')
  end
end
return 1
