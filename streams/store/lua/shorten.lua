-- Take the oldest segments of a log out, and append what is still needed of them.
--
-- KEYS  log, head
-- ARGV  stamp and number of segments as they were seen, number of the oldest segments, what is needed of them ('' if
--       nothing), entries in the log afterwards, new stamp
-- Reply number of segments, 0 if another writer changed the log in between.

local length, oldest = tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('HGET', KEYS[2], 'stamp') ~= ARGV[1] or redis.call('LLEN', KEYS[1]) ~= length then
  return 0
end
local segments = string.format('%.0f', length - oldest + (ARGV[4] == '' and 0 or 1))
if segments == '0' then
  return 0
end
-- As in apply_batch.lua: a torn append-only file must never leave less than there was. What is left after the trim is
-- fewer segments than the head says, and this explains it.
redis.call('HSET', KEYS[2], 'coming', segments .. ' ' .. ARGV[5])
if ARGV[4] ~= '' then
  redis.call('RPUSH', KEYS[1], ARGV[4])
end
redis.call('LTRIM', KEYS[1], oldest, -1)
redis.call('HSET', KEYS[2], 'stamp', ARGV[6], 'chunks', segments, 'records', ARGV[5])
redis.call('HDEL', KEYS[2], 'coming')
return tonumber(segments)
