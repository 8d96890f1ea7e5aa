-- Delete a key that is not of the type that keys of its name have.
--
-- KEYS  the key
-- ARGV  the right type
-- Reply 1 if it was deleted.

local found = redis.call('TYPE', KEYS[1]).ok
if found == 'none' or found == ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
