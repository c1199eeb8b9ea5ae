-- override: an operator changes limits of one account for a while, or takes that back.
--
-- KEYS    the overrides' key under each secret
-- ARGV    1 clock (clock.lua); 2 name of the limit; 3 its algorithm; 4 how long, ms, 0 = not any
--         more; 5 numbers: JSON, 0 = exempt
-- reply   one integer: when it ends, ms since the epoch; of one that is taken back, when it would
--         have ended; 0 if there was none
-- value   JSON, as terms.lua reads it; those that are over are dropped
-- life    until the last of them ends
-- cost    O(overrides of the account)

local name, life = ARGV[2], tonumber(ARGV[4])

local kept, latest = terms().overrides(1, #KEYS), 0
local before = kept[name]
kept[name] = nil
local ends = before and before[2] or 0
if life > 0 then
  ends = now + life
  kept[name] = { ARGV[3], ends, cjson.decode(ARGV[5]), now }
end
for _, it in pairs(kept) do
  latest = math.max(latest, it[2])
end
for _, key in ipairs(KEYS) do
  if latest > 0 then
    redis.call("SET", key, cjson.encode(kept), "PXAT", latest - now + base)
  else
    redis.call("DEL", key)
  end
end
return { ends }
