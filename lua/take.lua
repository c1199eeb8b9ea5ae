-- take: uses a one-time secret up, if one of the candidates is right.
--
-- KEYS    1 the record (put.lua)
-- ARGV    1 clock (clock.lua); then the candidates, any number
-- reply   1 if the last 32 bytes of a live value were one of them: it is gone now; else 0
-- cost    O(candidates)
--
-- Atomic because it is one script: of any number of parallel takes one is told 1.

local PROOF = 32

local record = redis.call("GET", KEYS[1])
local ends, made = struct.unpack(">I6I6", record or string.rep("\0", 12))
if made <= now and now < ends then -- as in read.lua
  local proof = string.sub(string.sub(record, 13), -PROOF)
  for i = 2, #ARGV do
    if ARGV[i] == proof then
      redis.call("DEL", KEYS[1])
      return { 1 }
    end
  end
end
return { 0 }
