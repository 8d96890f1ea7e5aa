-- Replace a small state if it still is what was read.
--
-- KEYS  state
-- ARGV  the state as it was read ('' if there was none), the new one, expiry (ms since the epoch)
-- Reply 1 if it was replaced.

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
return 1
