-- Add to the counters of a survey, and of one of its windows.
--
-- KEYS  counters of the survey, counters of the window (if there is one)
-- ARGV  lifetime of the first (ms), expiry of the second (ms since the epoch), (name, amount)...

for key = 1, #KEYS do
  for counter = 3, #ARGV, 2 do
    add(KEYS[key], ARGV[counter], ARGV[counter + 1])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if KEYS[2] then
  redis.call('PEXPIREAT', KEYS[2], ARGV[2])
end
return 1
