-- Note which cluster and topic the stored offsets belong to, unless another is noted.
--
-- KEYS  the note
-- ARGV  cluster and topic, lifetime of the key (ms)
-- Reply what is noted now.

-- Somebody else's value says nothing.
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then
  redis.call('DEL', KEYS[1])
end
local noted = redis.call('GET', KEYS[1])
if noted and noted ~= ARGV[1] then
  return noted
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
