-- clear: empties logs and ends their locks (an operator, or the owner's recovery).
--
-- KEYS    as in acquire.lua
-- ARGV    1 clock; 2 specs
-- reply   two integers for each limit: entries freed, locks ended
-- cost    O(1) a limit

local now, slack = clock(ARGV[1])
local specs = cjson.decode(ARGV[2])

local reply, at = {}, 1
for _, spec in ipairs(specs) do
  local algorithm = algorithms[spec[1]]
  local limit = algorithm.open(at, spec, now, slack)
  at = at + limit.keys
  local freed, ended = algorithm.clear(limit)
  reply[#reply + 1], reply[#reply + 2] = freed, ended
end
return reply
