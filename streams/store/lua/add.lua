-- Stands before scripts that count.

-- A counter that is no number starts again.
local function add(key, counter, amount)
  if type(redis.pcall('HINCRBY', key, counter, amount)) == 'table' then
    redis.call('HSET', key, counter, amount)
  end
end

