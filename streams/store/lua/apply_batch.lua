-- All that one batch of messages does to one shard number, or none of it.
--
-- KEYS  offset; then for each change: log, head, tally, total
-- ARGV  last offset of this writer, next offset, lifetime of keys that belong to no window (ms), offset below which all
--       reports of the changes lie ('' if not known); then for each change:
--       stamp folded on ('' if the log was empty), new stamp, expiry (ms since the epoch), mode (append, rewrite, check),
--       entries in the log afterwards (stored as records), accepted, length of the tally, number of segments,
--       segments..., number of counters, (name, amount)..., number of patches, (position, bytes)...
-- Reply {-1, stored offset} if it regressed (acknowledged writes were lost), else {0, positions of contended changes...}.
--
-- The order of writes matters after a torn append-only file, which can revive a prefix of them: the log comes first,
-- so that it never lacks what head, tally or offset claim, and its number of segments (stored as chunks) shows the tear.

local stored = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
if stored < tonumber(ARGV[1]) then
  return {-1, stored}
end

local function matches(stamp, held, log, tally, tally_bytes)
  if stamp == '' then
    return not held[1] and redis.call('EXISTS', log) == 0
  end
  return held[1] == stamp
    and redis.call('LLEN', log) == tonumber(held[2])
    and redis.call('STRLEN', tally) == tally_bytes
end

local reply = {0}
local kept = {}
local key, at, change = 2, 5, 0
while key <= #KEYS do
  local log, head, tally, total = KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]
  local stamp, fresh, expires, mode = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local log_entries, accepted, tally_bytes = ARGV[at + 4], ARGV[at + 5], tonumber(ARGV[at + 6])
  local counters_at = at + 9 + tonumber(ARGV[at + 7])
  local patches_at = counters_at + 2 * tonumber(ARGV[counters_at - 1]) + 1
  local next_at = patches_at + 2 * tonumber(ARGV[patches_at - 1])

  local held = redis.call('HMGET', head, 'stamp', 'chunks', 'limit', 'expires', 'applied')
  -- Set once for all three keys: what a head says of it is written last.
  local lives = stamp ~= '' and held[4] == expires
  if matches(stamp, held, log, tally, tally_bytes) then
    if mode ~= 'check' then
      local segments = redis.call('RPUSH', log, unpack(ARGV, at + 8, counters_at - 2))
      if not lives then
        redis.call('PEXPIREAT', log, expires)
      end
      if mode == 'rewrite' then
        -- Not DEL and RPUSH: between those two nothing would be left.
        redis.call('LTRIM', log, -1, -1)
        segments = 1
      end
      for patch = patches_at, next_at - 2, 2 do
        redis.call('SETRANGE', tally, ARGV[patch], ARGV[patch + 1])
      end
      if not lives then
        redis.call('PEXPIREAT', tally, expires)
      end
      local limit = held[3]
      if ARGV[4] == '' then
        redis.call('HDEL', head, 'limit')
        limit = false
      elseif (tonumber(limit) or 0) < tonumber(ARGV[4]) then
        limit = ARGV[4]
      end
      -- A counter that is no number starts again, as in `add`.
      local applied = tonumber(string.match(held[5] or '', '^%d+$') or 0) + accepted
      applied = string.format('%.0f', applied)
      if limit and (held[3] or stamp == '') then
        redis.call('HSET', head, 'stamp', fresh, 'chunks', segments, 'records', log_entries, 'applied', applied,
          'limit', limit)
      else
        -- The limit of a log that has none is not known, and stays so.
        redis.call('HSET', head, 'stamp', fresh, 'chunks', segments, 'records', log_entries, 'applied', applied)
      end
      add(total, 'applied', accepted)
    end
    for counter = counters_at, patches_at - 3, 2 do
      add(head, ARGV[counter], ARGV[counter + 1])
      add(total, ARGV[counter], ARGV[counter + 1])
    end
    if not lives then
      redis.call('PEXPIREAT', head, expires)
      if mode ~= 'check' then
        redis.call('HSET', head, 'expires', expires)
      end
    end
    if not kept[total] then
      redis.call('PEXPIRE', total, ARGV[3])
      kept[total] = true
    end
  else
    reply[#reply + 1] = change
  end
  key, at, change = key + 4, next_at, change + 1
end

if #reply == 1 and tonumber(ARGV[2]) > stored then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return reply
