-- Stands before scripts that read logs.

-- Segments from position `at` on: so many that they have at most `most` bytes, but at least `least` of them.
local function segments_of(log, at, most, least)
  local length = redis.call('LLEN', log)
  local segments = {}
  while at < length do
    local segment = redis.call('LINDEX', log, at)
    most = most - #segment
    if most < 0 and #segments >= least then
      break
    end
    segments[#segments + 1] = segment
    at = at + 1
  end
  return length, segments
end

