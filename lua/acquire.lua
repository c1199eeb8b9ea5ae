-- acquire: one decision over any number of limits; charges all of them or none.
--
-- KEYS    as open_limits.lua shares them out (how many each has: see its algorithm)
-- ARGV    1 clock: "" = the store's own, else integer ms (clock.lua)
--         2 cost: places the attempt takes in each limit, times its weight; a whole number >= 1
--         3 id of the attempt: 5 bytes, client tag (3) and nonce (2)
--         4 plan (open_limits.lua)
--         5 members: 6 bytes for each limit that tells values apart (distinct.lua), in turn
--         6 the last moment, ms: whoever asks has given up after it; "" or none = there is no such
-- reply   integers: now (ms), admitted (1 or 0), then six for each limit (answer.lua), and if a block
--         refuses, for each block; after the last moment now and -1, and nothing is charged
-- cost    the sum of the limits' costs; one reading of the clock
--
-- Atomic because it is one script: no other attempt is looked at between asking and charging.

local cost, id, last = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[6] or "")
if last and now > last then
  return { now, -1 }
end
local limits, first, count = open_limits(ARGV[4], ARGV[5])
local standing = blocks(first, count)

local admitted, by_load = not standing, not standing
for i = 1, #limits do
  local limit = limits[i]
  local places = cost * limit.weight
  if limit.algorithm.refuses(limit, places) then
    local whole = limit.terms and limit.terms.whole
    admitted, by_load = false, by_load and whole and not limit.algorithm.refuses(whole, places)
  end
end

local reply = { now, admitted and 1 or 0, string.byte(ARGV[4], 1, 6 * #limits) }
for i = 1, #limits do
  local limit, refuses = limits[i], false
  local places = cost * limit.weight
  if admitted then
    limit.algorithm.charge(limit, places, id)
  else
    limit.algorithm.refused(limit, places, by_load) -- what the load alone refuses counts nowhere
    refuses = limit.algorithm.refuses(limit, places) -- counting a refusal can fill a log
  end
  answer(reply, i, limit, refuses, places)
end
for i = 1, standing and #standing or 0 do
  local block = standing[i]
  block.algorithm.refused(block)
  answer(reply, #limits + i, block, block.algorithm.refuses(block))
end
return reply
