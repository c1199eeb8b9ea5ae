-- settle: a proven success takes its reservation back.
--
-- KEYS    as in acquire.lua
-- ARGV    1 clock; 2 when the attempt was reserved, ms (acquire's `now`); 3 its id; 4 its cost;
--         5 plan; 6 members
-- reply   two integers for each limit: entries freed, locks lifted
-- cost    O(entries) a limit
--
-- It names its own reservation: the second time it finds nothing and changes nothing.

local set_at, id, cost = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local reply = {}
for _, limit in ipairs((open_limits(ARGV[5], ARGV[6]))) do
  local freed, lifted = limit.algorithm.settle(limit, set_at, id, cost * limit.weight)
  reply[#reply + 1], reply[#reply + 2] = freed, lifted
end
return reply
