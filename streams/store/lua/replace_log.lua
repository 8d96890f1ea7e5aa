-- Replace a report log, readable or not.
--
-- KEYS  log, head, tally
-- ARGV  stamp and number of segments as they were seen, new stamp, entries, number of entries, the tally, expiry (ms since
--       the epoch), offset below which all entries lie ('' if not known)
-- Reply 1 if it was done, 0 if another writer changed the log in between.

if (redis.call('HGET', KEYS[2], 'stamp') or '') ~= ARGV[1] or redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[2]) then
  return 0
end
if ARGV[4] == '' then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
  return 1
end
-- As in apply_batch.lua: a torn append-only file must never leave less than there was.
redis.call('RPUSH', KEYS[1], ARGV[4])
redis.call('LTRIM', KEYS[1], -1, -1)
redis.call('SET', KEYS[3], ARGV[6])
redis.call('HSET', KEYS[2], 'stamp', ARGV[3], 'chunks', 1, 'records', ARGV[5])
if ARGV[8] == '' then
  redis.call('HDEL', KEYS[2], 'limit')
else
  redis.call('HSET', KEYS[2], 'limit', ARGV[8])
end
for key = 1, 3 do
  redis.call('PEXPIREAT', KEYS[key], ARGV[7])
end
return 1
