-- answer: adds to a reply what one limit says of an attempt.
--
-- -> five integers: state, limit (as it is for this call), remaining, wait (ms), reset (ms)
--    wait is -1 where the cost is above the limit, and no override or load will end
-- cost  O(1)

return function(reply, limit, refuses, cost)
  local state, remaining, wait, reset = limit.algorithm.verdict(limit, refuses, cost)
  if wait < 0 and limit.override_ends > limit.now then
    wait = limit.override_ends - limit.now
  end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = state, limit.limit, remaining
  reply[n + 4], reply[n + 5] = wait, reset
end
