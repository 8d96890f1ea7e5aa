-- Read one log and what summarises it, or a part of the log, at one moment.
--
-- KEYS  log, head, tally
-- ARGV  first segment that is wanted, most bytes of segments, least number of segments, whether the tally is wanted (1)
-- Reply {{stamp, number of segments, number of entries, both of the log that is about to take its place},
--       number of segments that there are, tally if it is wanted, segments}

local held = redis.call('HMGET', KEYS[2], 'stamp', 'chunks', 'records', 'coming')
local length = redis.call('LLEN', KEYS[1])
local tally = ARGV[4] == '1' and redis.call('GET', KEYS[3])
local at, most, least = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local segments = {}
while at < length do
  local segment = redis.call('LINDEX', KEYS[1], at)
  most = most - #segment
  if most < 0 and #segments >= least then
    break
  end
  segments[#segments + 1] = segment
  at = at + 1
end
return {held, length, tally, segments}
