-- open_limits: reads and checks all limits of a call, before any verb writes.
--
-- given    the specs, as decoded; members, 6 bytes for each limit that tells values apart, in turn;
--          now and slack (clock.lua); KEYS are shared out in turn
-- returns  a list with each limit's state, as its algorithm's `open` gives it, and the algorithm
--          itself as `algorithm`
-- cost     the sum of the algorithms' `open`
--
-- An error here (a wrong type, a malformed value, a missing permission) leaves no half state.

local MEMBER = 6

return function(specs, members, now, slack)
  local limits, at, member_at = {}, 1, 1
  for i, spec in ipairs(specs) do
    local algorithm, member = algorithms[spec[1]], nil
    if algorithm.tells_apart then
      member = string.sub(members, member_at, member_at + MEMBER - 1)
      member_at = member_at + MEMBER
      if #member ~= MEMBER then
        error("authguard: malformed members")
      end
    end
    limits[i] = algorithm.open(at, spec, now, slack, member)
    limits[i].algorithm = algorithm
    at = at + limits[i].keys
  end
  return limits
end
