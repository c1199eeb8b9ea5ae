-- open_limits: reads and checks all limits of a call, before any verb writes.
--
-- given    the specs, as decoded; now and slack (clock.lua); KEYS are shared out in turn
-- returns  a list with each limit's state, as its algorithm's `open` gives it, and the algorithm
--          itself as `algorithm`
-- cost     the sum of the algorithms' `open`
--
-- An error here (a wrong type, a malformed value, a missing permission) leaves no half state.

return function(specs, now, slack)
  local limits, at = {}, 1
  for i, spec in ipairs(specs) do
    local algorithm = algorithms[spec[1]]
    limits[i] = algorithm.open(at, spec, now, slack)
    limits[i].algorithm = algorithm
    at = at + limits[i].keys
  end
  return limits
end
