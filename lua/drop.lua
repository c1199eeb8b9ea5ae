-- drop: takes one-time secrets away.
--
-- KEYS    the records (put.lua)
-- reply   how many there were, whether or not their life was over
-- cost    O(KEYS)

return { #KEYS > 0 and redis.call("DEL", unpack(KEYS)) or 0 }
