-- load: the share of the service's capacity that elastic limits follow now; writes nothing.
--
-- KEYS    the load's key under each secret
-- ARGV    1 clock (clock.lua)
-- reply   three integers: the share in thousandths, 1000 where nobody has said anything; when it
--         ends and when it was said, ms since the epoch, both 0 where nobody has
-- cost    O(KEYS)

local share, holds, made = terms().load(1, #KEYS)
return { share, holds > 0 and now + holds or 0, made }
