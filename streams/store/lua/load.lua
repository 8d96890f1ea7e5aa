-- Read one log and what summarises it, all at one moment.
--
-- KEYS  log, head, tally
-- Reply {{stamp, number of segments, number of entries}, segments of the log, tally}

return {
  redis.call('HMGET', KEYS[2], 'stamp', 'chunks', 'records'),
  redis.call('LRANGE', KEYS[1], 0, -1),
  redis.call('GET', KEYS[3]),
}
