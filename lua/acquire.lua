-- acquire: one decision over any number of limits; charges all of them or none.
--
-- KEYS    the keys of each limit in turn (how many: see the limit's algorithm)
-- ARGV    1 clock: "" = the store's own, else integer ms (clock.lua)
--         2 cost: places the attempt takes in each limit, a whole number >= 1
--         3 id of the attempt: 5 bytes, client tag (3) and nonce (2)
--         4 specs: JSON list of each limit's spec; spec[1] names the algorithm
--         5 members: 6 bytes for each limit that tells values apart (distinct.lua), in turn
-- reply   integers: now (ms), admitted (1 or 0), then four for each limit:
--         state, remaining, wait (ms), reset (ms), as its algorithm's `verdict` says
-- cost    the sum of the limits' costs; one reading of the clock
--
-- Atomic because it is one script: no other attempt is looked at between asking and charging.

local now, slack = clock(ARGV[1])
local cost, id = tonumber(ARGV[2]), ARGV[3]
local limits = open_limits(cjson.decode(ARGV[4]), ARGV[5], now, slack)

local refusals, admitted = {}, true
for i, limit in ipairs(limits) do
  refusals[i] = limit.algorithm.refuses(limit, cost)
  admitted = admitted and not refusals[i]
end

local reply = { now, admitted and 1 or 0 }
for i, limit in ipairs(limits) do
  if admitted then
    limit.algorithm.charge(limit, cost, id)
  else
    limit.algorithm.refused(limit, cost)
    refusals[i] = limit.algorithm.refuses(limit, cost) -- counting a refusal can fill a log
  end
  local state, remaining, wait, reset = limit.algorithm.verdict(limit, refusals[i], cost)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = state, remaining, wait, reset
end
return reply
