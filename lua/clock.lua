-- clock: the one reading of time in a call; joined first, so that all that follows knows it.
--
-- given   ARGV[1]: "" for the store's own clock, else integer ms since the epoch (a test or a replay;
--         never a request)
-- sets    now   integer ms since the epoch
--         base  the instant every expiry counts from, by the store's clock: `now`, if that is it. A
--               passed clock does not drive the store's expiry, so keys then live an hour longer
--               than they matter.
-- cost    O(1)

local now, base
do
  local time = redis.call("TIME") -- Redis 7.0 goes on counting in a script: read it once
  base = time[1] * 1000 + math.floor(time[2] / 1000)
  if ARGV[1] == "" then
    now = base
  else
    now, base = tonumber(ARGV[1]), base + 3600000
  end
end
