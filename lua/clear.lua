-- clear: empties logs and ends their locks (an operator).
--
-- KEYS    as in acquire.lua
-- ARGV    1 clock; 2 plan; 3 members
-- reply   two integers for each limit: entries freed, locks ended
-- cost    O(1) a limit

local reply = {}
for _, limit in ipairs((open_limits(ARGV[2], ARGV[3]))) do
  local freed, ended = limit.algorithm.clear(limit)
  reply[#reply + 1], reply[#reply + 2] = freed, ended
end
return reply
