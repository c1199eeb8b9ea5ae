-- answer: puts into a reply what one limit says of an attempt.
--
-- given  the reply; the limit's place in it, from 1; the limit; whether it refuses; the cost
-- puts   six integers: state, limit and window (ms) as they are for this call, remaining, wait (ms),
--        reset (ms); wait is -1 where the cost is above the limit, and no override or load will end
-- cost   O(1)
--
-- A table that grows is copied again and again: a verb makes its reply with room for all limits, by
-- whatever bytes it has.

local function answer(reply, place, limit, refuses, cost)
  local state, remaining, wait, reset = limit.algorithm.verdict(limit, refuses, cost)
  if refuses and limit.terms then
    wait = limit.terms.wait(wait, cost)
  end
  local at = 6 * place
  reply[at - 3], reply[at - 2], reply[at - 1] = state, limit.limit, limit.window
  reply[at], reply[at + 1], reply[at + 2] = remaining, wait, reset
end
