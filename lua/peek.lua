-- peek: what acquire would say now; writes nothing.
--
-- KEYS, reply   as in acquire.lua
-- ARGV          1 clock, 2 cost, 3 specs, as ARGV[1], [2] and [4] of acquire.lua
-- cost          as acquire.lua, without the copying

local now, slack = clock(ARGV[1])
local cost, specs = tonumber(ARGV[2]), cjson.decode(ARGV[3])

local reply, at = { now, 1 }, 1
for _, spec in ipairs(specs) do
  local algorithm = algorithms[spec[1]]
  local limit = algorithm.open(at, spec, now, slack)
  at = at + limit.keys
  local refuses = algorithm.refuses(limit, cost)
  if refuses then
    reply[2] = 0
  end
  local state, remaining, wait, reset = algorithm.verdict(limit, refuses, cost)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = state, remaining, wait, reset
end
return reply
