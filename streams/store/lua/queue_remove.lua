-- Remove a window from the recompute queue if it was not put again since it was read.
--
-- KEYS  the queue
-- ARGV  member, score as it was read
-- Reply 1 if it was removed.

local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if score and tonumber(score) == tonumber(ARGV[2]) then
  return redis.call('ZREM', KEYS[1], ARGV[1])
end
return 0
