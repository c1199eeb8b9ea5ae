-- inspect: how every limit stands, for an operator; writes nothing.
--
-- KEYS    as in acquire.lua
-- ARGV    1 clock; 2 plan; 3 members
-- reply   ten integers for each limit, then each block: limit and window (ms), as they are now; when its override ends
--         (ms since the epoch, 0 if it has none); whether that exempts; then, as its algorithm says,
--         places used; its newest entry (ms since the epoch, 0 if none); ms until one more place is
--         free (0 if none is taken); locked until (ms since the epoch, 0 if not, -1 if for ever);
--         level; when the lock was set (ms, 0 if none)
-- cost    as peek.lua

local limits, first, count = open_limits(ARGV[2], ARGV[3])
for at = first, first + count - 1 do
  local it = block.open(at)
  it.algorithm = block
  limits[#limits + 1] = it
end

local reply = {}
for _, limit in ipairs(limits) do
  local n, terms = #reply, limit.terms
  reply[n + 1], reply[n + 2] = limit.limit, limit.window
  reply[n + 3], reply[n + 4] = terms and terms.ends or 0, terms and terms.exempt and 1 or 0
  for _, number in ipairs({ limit.algorithm.inspect(limit) }) do
    reply[#reply + 1] = number
  end
end
return reply
