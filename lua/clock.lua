-- clock: the one reading of time in a decision.
--
-- given    ARGV's clock argument: "" for the store's own clock, else integer ms since the epoch
--          (a test or a replay; never a request)
-- returns  now     integer ms since the epoch
--          slack   ms to add to every expiry: 0 by the store's clock. A passed clock does not
--                  drive the store's expiry, so keys then live an hour longer than they matter.
-- cost     O(1)

return function(passed)
  if passed ~= "" then
    return tonumber(passed), 3600000
  end
  local time = redis.call("TIME") -- frozen while a script runs: any further reading is the same
  return time[1] * 1000 + math.floor(time[2] / 1000), 0
end
