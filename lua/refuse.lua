-- refuse: an attempt is refused by another group of keys: what counts refusals counts it.
--
-- KEYS, ARGV, reply   as in peek.lua
-- cost                as acquire.lua
--
-- For a cluster, where one call can't ask all limits. On one server acquire.lua does the same.

local cost = tonumber(ARGV[2])
local limits, first, count = open_limits(ARGV[3], ARGV[4])
local standing = blocks(first, count)

local reply = { now, standing and 0 or 1, string.byte(ARGV[3], 1, 6 * #limits) }
for i, limit in ipairs(limits) do
  local places = cost * limit.weight
  limit.algorithm.refused(limit, places, false)
  local refuses = limit.algorithm.refuses(limit, places) -- counting a refusal can fill a log
  if refuses then
    reply[2] = 0
  end
  answer(reply, i, limit, refuses, places)
end
for i, each in ipairs(standing or {}) do
  each.algorithm.refused(each)
  answer(reply, #limits + i, each, each.algorithm.refuses(each))
end
return reply
