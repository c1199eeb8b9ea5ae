-- clock: the one reading of time in a decision.
--
-- given    ARGV's clock argument: "" for the store's own clock, else integer ms since the epoch
--          (a test or a replay; never a request)
-- returns  now     integer ms since the epoch
--          base    the instant every expiry counts from, by the store's clock: `now`, if that is
--                  it. A passed clock does not drive the store's expiry, so keys then live an hour
--                  longer than they matter.
-- cost     O(1)

return function(passed)
  local time = redis.call("TIME") -- Redis 7.0 goes on counting in a script: read it once
  local base = time[1] * 1000 + math.floor(time[2] / 1000)
  if passed ~= "" then
    return tonumber(passed), base + 3600000
  end
  return base, base
end
