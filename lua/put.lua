-- put: stores a one-time secret, over any other of that name.
--
-- KEYS    1 the record
-- ARGV    1 clock (clock.lua); 2 life, ms; 3 value, any bytes
-- value   ends (6, ms, big-endian) · made (6, ms) · the value
-- reply   1
-- cost    O(1)

local life = tonumber(ARGV[2])

redis.call("SET", KEYS[1], struct.pack(">I6I6", now + life, now) .. ARGV[3], "PXAT", life + base)
return { 1 }
