-- acquire: one decision over any number of limits; charges all of them or none.
--
-- KEYS    as open_limits.lua shares them out (how many each has: see its algorithm)
-- ARGV    1 clock: "" = the store's own, else integer ms (clock.lua)
--         2 cost: places the attempt takes in each limit, times its weight; a whole number >= 1
--         3 id of the attempt: 5 bytes, client tag (3) and nonce (2)
--         4 plan: JSON (open_limits.lua)
--         5 members: 6 bytes for each limit that tells values apart (distinct.lua), in turn
--         6 the last moment, ms: whoever asks has given up after it; "" or none = there is no such
-- reply   integers: now (ms), admitted (1 or 0), then six for each limit (answer.lua); after the
--         last moment now and -1, and nothing is charged
-- cost    the sum of the limits' costs; one reading of the clock
--
-- Atomic because it is one script: no other attempt is looked at between asking and charging.

local now, base = clock(ARGV[1])
local cost, id, last = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[6] or "")
if last and now > last then
  return { now, -1 }
end
local limits = open_limits(cjson.decode(ARGV[4]), ARGV[5], now, base)

local refusals, admitted, by_load = {}, true, true
for i, limit in ipairs(limits) do
  local places = cost * limit.weight
  refusals[i] = limit.algorithm.refuses(limit, places)
  if refusals[i] then
    admitted = false
    by_load = by_load and limit.whole and not limit.algorithm.refuses(limit.whole, places)
  end
end

local reply = { now, admitted and 1 or 0 }
for i, limit in ipairs(limits) do
  local places = cost * limit.weight
  if admitted then
    limit.algorithm.charge(limit, places, id)
  else
    limit.algorithm.refused(limit, places, by_load) -- what the load alone refuses counts nowhere
    refusals[i] = limit.algorithm.refuses(limit, places) -- counting a refusal can fill a log
  end
  answer(reply, limit, refusals[i], places)
end
return reply
