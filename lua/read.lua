-- read: gives one-time secrets as put.lua stored them; writes nothing.
--
-- KEYS    the records
-- ARGV    1 clock (clock.lua)
-- reply   the value of each, or "" if it is not there, or its life is over
-- cost    O(KEYS)
--
-- A record from later than now can only come from a clock that stepped back: it is over too, since
-- nobody knows how long it has lived.

local reply = {}
for i, key in ipairs(KEYS) do
  local record = redis.call("GET", key)
  local ends, made = struct.unpack(">I6I6", record or string.rep("\0", 12))
  reply[i] = made <= now and now < ends and string.sub(record, 13) or ""
end
return reply
