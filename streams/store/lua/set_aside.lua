-- Move a report log that cannot be read out of the way: the log is empty afterwards. Or leave it where it is, and only
-- forget what head and tally claim about it.
--
-- KEYS  log, head, tally, where the old log is kept (if it is moved)
-- ARGV  stamp and number of segments as they were seen, expiry of the old log (ms since the epoch; if it is moved)
-- Reply 1 if it was done, 0 if another writer changed the log in between.

if (redis.call('HGET', KEYS[2], 'stamp') or '') ~= ARGV[1] or redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[2]) then
  return 0
end
if KEYS[4] then
  redis.call('RENAME', KEYS[1], KEYS[4])
  redis.call('PEXPIREAT', KEYS[4], ARGV[3])
end
redis.call('HDEL', KEYS[2], 'stamp', 'chunks', 'records', 'expires', 'coming')
redis.call('DEL', KEYS[3])
return 1
