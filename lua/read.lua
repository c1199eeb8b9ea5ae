-- read: gives one-time secrets as put.lua stored them; writes nothing.
--
-- KEYS    the records
-- ARGV    1 clock (clock.lua)
-- reply   the value of each, or "" if it is not there, or its life is over
-- cost    O(KEYS)

local now = clock(ARGV[1])

local reply = {}
for i, key in ipairs(KEYS) do
  local record = redis.call("GET", key)
  local alive = record and now < struct.unpack(">I6", record)
  reply[i] = alive and string.sub(record, 7) or ""
end
return reply
