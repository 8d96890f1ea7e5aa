-- Read what was counted for one shard of a window, and from where, all at one moment.
--
-- KEYS  offset, head, tally, log
-- ARGV  whether the log is wanted (1 or 0), the stamp of the log that the reader has
-- Reply {offset, {stamp, limit}, tally, segments of the log if it is wanted and has another stamp}

local held = redis.call('HMGET', KEYS[2], 'stamp', 'limit')
local segments = false
if ARGV[1] == '1' and (held[1] or '') ~= ARGV[2] then
  segments = redis.call('LRANGE', KEYS[4], 0, -1)
end
return {redis.call('GET', KEYS[1]), held, redis.call('GET', KEYS[3]), segments}
