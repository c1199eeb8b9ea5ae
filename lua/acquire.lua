-- acquire: one decision over any number of limits; charges all of them or none.
--
-- KEYS    the keys of each limit in turn (how many: see the limit's algorithm)
-- ARGV    1 clock: "" = the store's own, else integer ms (clock.lua)
--         2 cost: places the attempt takes in each limit, a whole number >= 1
--         3 id of the attempt: 5 bytes, client tag (3) and nonce (2)
--         4 specs: JSON list of each limit's spec; spec[1] names the algorithm
-- reply   integers: now (ms), admitted (1 or 0), then four for each limit:
--         state, remaining, wait (ms), reset (ms), as its algorithm's `verdict` says
-- cost    the sum of the limits' costs; one reading of the clock
--
-- Atomic because it is one script: no other attempt is looked at between asking and charging.

local now, slack = clock(ARGV[1])
local cost, id, specs = tonumber(ARGV[2]), ARGV[3], cjson.decode(ARGV[4])

local limits, refusals, at, admitted = {}, {}, 1, true
for i, spec in ipairs(specs) do
  local algorithm = algorithms[spec[1]]
  limits[i] = algorithm.open(at, spec, now, slack)
  at = at + limits[i].keys
  refusals[i] = algorithm.refuses(limits[i], cost)
  admitted = admitted and not refusals[i]
end

local reply = { now, admitted and 1 or 0 }
for i, spec in ipairs(specs) do
  local algorithm = algorithms[spec[1]]
  if admitted then
    algorithm.charge(limits[i], cost, id)
  else
    algorithm.refused(limits[i], cost)
    refusals[i] = algorithm.refuses(limits[i], cost) -- counting a refusal can fill a log
  end
  local state, remaining, wait, reset = algorithm.verdict(limits[i], refusals[i], cost)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = state, remaining, wait, reset
end
return reply
