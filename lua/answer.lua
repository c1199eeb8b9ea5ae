-- answer: adds to a reply what one limit says of an attempt.
--
-- -> six integers: state, limit and window (ms) as they are for this call, remaining, wait (ms),
--    reset (ms); wait is -1 where the cost is above the limit, and no override or load will end
-- cost  O(1)

-- Milliseconds until the limit admits, if that is only once its override has ended; -1 never.
local function wait_after(limit, cost)
  local after, wait = limit.after(), 0
  if after.algorithm.refuses(after, cost) then
    local _
    _, _, wait = after.algorithm.verdict(after, true, cost)
  end
  return wait < 0 and wait or math.max(wait, limit.override_ends - limit.now)
end

return function(reply, limit, refuses, cost)
  local state, remaining, wait, reset = limit.algorithm.verdict(limit, refuses, cost)
  if refuses and limit.after and (wait < 0 or limit.now + wait >= limit.override_ends) then
    wait = wait_after(limit, cost)
  end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = state, limit.limit, limit.window
  reply[n + 4], reply[n + 5], reply[n + 6] = remaining, wait, reset
end
