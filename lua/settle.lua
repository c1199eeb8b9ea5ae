-- settle: a proven success takes its reservation back.
--
-- KEYS    as in acquire.lua
-- ARGV    1 clock; 2 when the attempt was reserved, ms (acquire's `now`); 3 its id; 4 its cost;
--         5 specs
-- reply   two integers for each limit: entries freed, locks lifted
-- cost    O(entries) a limit
--
-- It names its own reservation: the second time it finds nothing and changes nothing.

local now, slack = clock(ARGV[1])
local set_at, id, cost, specs = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), cjson.decode(ARGV[5])

local limits, at = {}, 1
for i, spec in ipairs(specs) do -- all is read before the first write: an error leaves no half state
  limits[i] = algorithms[spec[1]].open(at, spec, now, slack)
  at = at + limits[i].keys
end

local reply = {}
for i, spec in ipairs(specs) do
  local freed, lifted = algorithms[spec[1]].settle(limits[i], set_at, id, cost)
  reply[#reply + 1], reply[#reply + 2] = freed, lifted
end
return reply
