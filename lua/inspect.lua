-- inspect: how every limit stands, for an operator; writes nothing.
--
-- KEYS    as in acquire.lua
-- ARGV    1 clock; 2 specs; 3 members
-- reply   six integers for each limit: places used; its newest entry (ms since the epoch, 0 if
--         none); ms until one more place is free (0 if none is taken); locked until (ms since
--         the epoch, 0 if not, -1 if for ever); level; when the lock was set (ms, 0 if none)
-- cost    as peek.lua

local now, slack = clock(ARGV[1])

local reply = {}
for _, limit in ipairs(open_limits(cjson.decode(ARGV[2]), ARGV[3], now, slack)) do
  for _, number in ipairs({ limit.algorithm.inspect(limit) }) do
    reply[#reply + 1] = number
  end
end
return reply
