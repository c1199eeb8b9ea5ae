-- times: times inside a packed log, five bytes each.
--
-- An integer ms since the epoch modulo 2^40 (34 years), big-endian; read as the nearest, so 17
-- years either way. Zero is left for "none": what falls on it is kept as one millisecond later.
-- cost  O(1) each

local MODULUS, HALF = 2 ^ 40, 2 ^ 39

local function stamp(time)
  return struct.pack(">I5", math.max(1, time % MODULUS))
end

local stamp_now = stamp(now)

-- Milliseconds from the time at byte `at` (from 1) until now; negative if it lies ahead.
local function age(log, at)
  local since = (now - struct.unpack(">I5", log, at)) % MODULUS
  return since < HALF and since or since - MODULUS
end
