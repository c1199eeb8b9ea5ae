-- pardon: an operator lets an account go on, from whichever client it comes.
--
-- What counts by account and client together has a key for each client, and nobody knows which
-- clients there are. So the time of the pardon is kept beside them, and what those logs and locks
-- hold from before it counts for nothing (sliding_log.lua).
--
-- KEYS    the pardon's key under each secret
-- ARGV    1 clock (clock.lua); 2 how long, ms: what was made just before it no longer matters then
-- value   6 bytes, big-endian: when (ms)
-- reply   one integer: when, ms since the epoch
-- cost    O(KEYS)

for _, key in ipairs(KEYS) do
  redis.call("SET", key, struct.pack(">I6", now), "PXAT", tonumber(ARGV[2]) + base)
end
return { now }
