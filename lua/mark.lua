-- mark: leaves a mark that only a loss of data takes away, or tells the one that is there.
--
-- KEYS    the mark
-- ARGV    1 clock (clock.lua); 2 a fresh mark; 3 life, ms, from now
-- reply   the mark
-- cost    O(1)

local mark = redis.call("GET", KEYS[1]) or ARGV[2]
redis.call("SET", KEYS[1], mark, "PXAT", tonumber(ARGV[3]) + base)
return mark
