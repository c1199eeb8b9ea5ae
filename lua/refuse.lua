-- refuse: an attempt is refused by another group of keys: what counts refusals counts it.
--
-- KEYS, ARGV, reply   as in peek.lua
-- cost                as acquire.lua
--
-- For a cluster, where one call can't ask all limits. On one server acquire.lua does the same.

local now, base = clock(ARGV[1])
local cost = tonumber(ARGV[2])

local reply = { now, 1 }
for _, limit in ipairs(open_limits(cjson.decode(ARGV[3]), ARGV[4], now, base)) do
  local places = cost * limit.weight
  limit.algorithm.refused(limit, places, false)
  local refuses = limit.algorithm.refuses(limit, places) -- counting a refusal can fill a log
  if refuses then
    reply[2] = 0
  end
  answer(reply, limit, refuses, places)
end
return reply
