-- set_block: an operator blocks what the keys stand for (block.lua).
--
-- KEYS    the block's key under each secret
-- ARGV    1 clock (clock.lua); 2 how long, ms; 0 = until it is cleared
-- reply   one integer: when it ends, ms since the epoch; 0 = never
-- cost    O(KEYS)

local TEN_YEARS = 3650 * 86400000 -- every key has an expiry

local length = tonumber(ARGV[2])
local ends = length > 0 and now + length or 0

for _, key in ipairs(KEYS) do
  local life = length > 0 and length or TEN_YEARS
  redis.call("SET", key, struct.pack(">I6I6", ends, now), "PXAT", life + base)
end
return { ends }
