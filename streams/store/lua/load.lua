-- Read one log and what summarises it, or a part of the log, at one moment.
--
-- KEYS  log, head, tally
-- ARGV  first segment that is wanted, most bytes of segments, least number of segments, whether the tally is wanted (1)
-- Reply {{stamp, number of segments, number of entries, both of the log that is about to take its place},
--       number of segments that there are, tally if it is wanted, segments}

local held = redis.call('HMGET', KEYS[2], 'stamp', 'chunks', 'records', 'coming')
local tally = ARGV[4] == '1' and redis.call('GET', KEYS[3])
local length, segments = segments_of(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))
return {held, length, tally, segments}
