-- peek: what acquire would say now; writes nothing.
--
-- KEYS, reply   as in acquire.lua
-- ARGV          1 clock, 2 cost, 3 plan, 4 members, as ARGV[1], [2], [4] and [5] of acquire.lua
-- cost          as acquire.lua, without the copying

local cost = tonumber(ARGV[2])
local limits, first, count = open_limits(ARGV[3], ARGV[4])
local standing = blocks(first, count)

local reply = { now, standing and 0 or 1, string.byte(ARGV[3], 1, 6 * #limits) }
for i, limit in ipairs(limits) do
  local places = cost * limit.weight
  local refuses = limit.algorithm.refuses(limit, places)
  if refuses then
    reply[2] = 0
  end
  answer(reply, i, limit, refuses, places)
end
for i, each in ipairs(standing or {}) do
  answer(reply, #limits + i, each, each.algorithm.refuses(each))
end
return reply
