-- load: the share of the service's capacity that elastic limits follow now; writes nothing.
--
-- KEYS    the load's key under each secret
-- ARGV    1 clock (clock.lua)
-- reply   two integers: the share in thousandths, 1000 where nobody has said anything; and when it
--         ends, ms since the epoch, 0 where nobody has
-- cost    O(KEYS)

local now = clock(ARGV[1])
local share, holds = terms.load(1, #KEYS, now)
return { share, holds > 0 and now + holds or 0 }
