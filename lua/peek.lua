-- peek: what acquire would say now; writes nothing.
--
-- KEYS, reply   as in acquire.lua
-- ARGV          1 clock, 2 cost, 3 plan, 4 members, as ARGV[1], [2], [4] and [5] of acquire.lua
-- cost          as acquire.lua, without the copying

local now, base = clock(ARGV[1])
local cost = tonumber(ARGV[2])

local reply = { now, 1 }
for _, limit in ipairs(open_limits(cjson.decode(ARGV[3]), ARGV[4], now, base)) do
  local places = cost * limit.weight
  local refuses = limit.algorithm.refuses(limit, places)
  if refuses then
    reply[2] = 0
  end
  answer(reply, limit, refuses, places)
end
return reply
