-- override: an operator changes limits of one account for a while, or takes that back.
--
-- KEYS    the overrides' key under each secret
-- ARGV    1 clock (clock.lua); 2 name of the limit; 3 its algorithm; 4 how long, ms, 0 = not any
--         more; 5 numbers: JSON, [] = exempt
-- reply   one integer: when it ends, ms since the epoch; of one that is taken back, when it would
--         have ended; 0 if there was none
-- value   JSON, as terms.lua reads it; those that are over are dropped
-- life    until the last of them ends
-- cost    O(overrides of the account)

local now, slack = clock(ARGV[1])
local name, life = ARGV[2], tonumber(ARGV[4])

local before, kept, latest = terms.overrides(1, #KEYS), {}, 0
local any = false
for other, it in pairs(before) do
  if other ~= name and now < it[2] then
    kept[other], latest, any = it, math.max(latest, it[2]), true
  end
end
local ends = 0
if life > 0 then
  ends, any = now + life, true
  kept[name], latest = { ARGV[3], ends, cjson.decode(ARGV[5]), now }, math.max(latest, ends)
elseif before[name] and now < before[name][2] then
  ends = before[name][2]
end
for _, key in ipairs(KEYS) do
  if any then
    redis.call("SET", key, cjson.encode(kept), "PX", latest - now + slack)
  else
    redis.call("DEL", key)
  end
end
return { ends }
