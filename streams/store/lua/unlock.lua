-- Release a lock if the secret still holds it.
--
-- KEYS  the lock
-- ARGV  the secret it was taken with

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
