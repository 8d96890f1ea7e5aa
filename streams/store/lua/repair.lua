-- Rewrite a head and a tally that disagree with their log. The log wins.
--
-- KEYS  log, head, tally
-- ARGV  stamp and number of segments as they were read, new stamp, entries in the log, the tally, expiry (ms since the epoch)
-- Reply 1 if it was done, 0 if another writer changed the log in between: read it again.

local segments = redis.call('LLEN', KEYS[1])
if (redis.call('HGET', KEYS[2], 'stamp') or '') ~= ARGV[1] or segments ~= tonumber(ARGV[2]) then
  return 0
end
if segments == 0 then
  redis.call('DEL', KEYS[2], KEYS[3])
  return 1
end
local held = redis.call('HMGET', KEYS[2], 'chunks', 'records')
if held[1] ~= ARGV[2] or held[2] ~= ARGV[4] then
  -- The log has more than the head says: where that comes from is not known.
  redis.call('HDEL', KEYS[2], 'limit')
end
redis.call('HDEL', KEYS[2], 'expires', 'coming')
redis.call('SET', KEYS[3], ARGV[5])
redis.call('HSET', KEYS[2], 'stamp', ARGV[3], 'chunks', segments, 'records', ARGV[4])
if (tonumber(redis.call('HGET', KEYS[2], 'applied') or '0') or 0) < tonumber(ARGV[4]) then
  redis.call('HSET', KEYS[2], 'applied', ARGV[4])
end
for key = 1, 3 do
  redis.call('PEXPIREAT', KEYS[key], ARGV[6])
end
return 1
