-- recover: the owner's recovery; as clear, for short limits and for those that refuse now.
--
-- KEYS, ARGV, reply, cost    as clear.lua; 0 and 0 for a limit that stays as it is
--
-- A long limit that is not full goes on counting, whatever the load: it bounds what an attacker gets
-- in a month, however often the owner recovers. What an operator has set (a block) stays.

local SHORT = 3600000

local reply = {}
for _, limit in ipairs((open_limits(ARGV[2], ARGV[3]))) do
  local freed, ended = 0, 0
  local lifts = limit.window <= SHORT
    or limit.algorithm.refuses(limit.terms and limit.terms.whole or limit, limit.weight)
  if lifts and not limit.algorithm.of_operators then
    freed, ended = limit.algorithm.clear(limit)
  end
  reply[#reply + 1], reply[#reply + 2] = freed, ended
end
return reply
