-- Read what was counted for one shard of a window, and from where, all at one moment.
--
-- KEYS  offset, head, tally, log
-- ARGV  whether the log is wanted (1 or 0), the stamp of the log that the reader has, most bytes of segments
-- Reply {offset, {stamp, limit}, tally, {number of segments that there are, the first of them} if the log is wanted and
--       has another stamp}

local held = redis.call('HMGET', KEYS[2], 'stamp', 'limit')
local begun = false
if ARGV[1] == '1' and (held[1] or '') ~= ARGV[2] then
  begun = {segments_of(KEYS[4], 0, tonumber(ARGV[3]), 0)}
end
return {redis.call('GET', KEYS[1]), held, redis.call('GET', KEYS[3]), begun}
