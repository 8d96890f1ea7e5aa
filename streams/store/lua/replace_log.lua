-- Replace a report log, readable or not.
--
-- KEYS  log, head, tally, the new log
-- ARGV  stamp and number of segments as they were seen, new stamp, segments of the new log, number of entries, the tally,
--       expiry (ms since the epoch), offset below which all entries lie ('' if not known)
-- Reply 1 if it was done, 0 if another writer changed the log in between, or the new one is not there as it was written.

if (redis.call('HGET', KEYS[2], 'stamp') or '') ~= ARGV[1] or redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[4])
  return 0
end
if ARGV[4] == '0' then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
  return 1
end
if redis.call('LLEN', KEYS[4]) ~= tonumber(ARGV[4]) then
  redis.call('DEL', KEYS[4])
  return 0
end
-- Before it takes the place: it was to end soon by itself. A window that is over ends here.
if redis.call('PEXPIREAT', KEYS[4], ARGV[7]) == 0 or redis.call('EXISTS', KEYS[4]) == 0 then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
  return 1
end
-- In one step, and announced: a torn append-only file must never leave less than there was, nor what nothing explains.
redis.call('HSET', KEYS[2], 'coming', ARGV[4] .. ' ' .. ARGV[5])
redis.call('RENAME', KEYS[4], KEYS[1])
redis.call('HDEL', KEYS[2], 'expires')
redis.call('SET', KEYS[3], ARGV[6])
redis.call('HSET', KEYS[2], 'stamp', ARGV[3], 'chunks', ARGV[4], 'records', ARGV[5])
redis.call('HDEL', KEYS[2], 'coming')
if ARGV[8] == '' then
  redis.call('HDEL', KEYS[2], 'limit')
else
  redis.call('HSET', KEYS[2], 'limit', ARGV[8])
end
for key = 1, 3 do
  redis.call('PEXPIREAT', KEYS[key], ARGV[7])
end
return 1
