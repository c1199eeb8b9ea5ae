-- open_limits: reads and checks all limits of a call, before any verb writes.
--
-- given    the plan, as decoded: { overrides, loads (how many keys of each), limits, load (share and
--          end, ms, where no key tells it: on a cluster) }; each of the limits is { algorithm, name, weight (places one of the cost takes), flags, own (its
--          algorithm's numbers) }; flags: 1 = elastic, 2 = heeds overrides
--          members, 6 bytes for each limit that tells values apart, in turn
--          now and base (clock.lua); KEYS are shared out in turn: overrides, loads, limits
-- returns  a list with each limit's state, as its algorithm's `open` gives it, besides
--          algorithm       what answers for it
--          weight
--          override_ends   when its override ends (ms), 0 if it has none
--          exempt          whether it is one that exempts
--          whole           the limit without the load, if that scales it
--          after           opens the limit as it is once its override has ended, if it has one
-- cost     the sum of the algorithms' `open`
--
-- An error here (a wrong type, a malformed value, a missing permission) leaves no half state.

local MEMBER = 6
local ELASTIC, HEEDS_OVERRIDES = 1, 2

local open
function open(at, spec, member, overrides, share, holds, now, base)
  local kind, algorithm, own = spec[1], algorithms[spec[1]], spec[5]
  local ends, exempt
  if spec[4] >= HEEDS_OVERRIDES then
    own, ends, exempt = terms.override(overrides, spec[2], kind, own)
  end
  local limit
  if spec[4] % 2 == ELASTIC and share < 1000 then
    limit = algorithm.open(at, terms.scaled(own, share, algorithm.drains), now, base, member)
    limit.whole = algorithm.open(at, own, now, base, member)
    algorithm = terms.elastic(algorithm, holds)
  else
    limit = algorithm.open(at, own, now, base, member)
  end
  limit.algorithm = exempt and terms.exempt(algorithm) or algorithm
  limit.weight, limit.override_ends, limit.exempt = spec[3], ends or 0, exempt
  if ends then
    limit.after = function()
      return open(at, spec, member, {}, share, holds, now, base)
    end
  end
  return limit
end

return function(plan, members, now, base)
  local overrides = terms.overrides(1, plan.overrides, now)
  local share, holds = terms.load(1 + plan.overrides, plan.loads, now)
  if plan.load and now < plan.load[2] then
    share, holds = plan.load[1], plan.load[2] - now
  end
  local limits, at, member_at = {}, 1 + plan.overrides + plan.loads, 1
  for i, spec in ipairs(plan.limits) do
    local member
    if algorithms[spec[1]].tells_apart then
      member = string.sub(members, member_at, member_at + MEMBER - 1)
      member_at = member_at + MEMBER
      if #member ~= MEMBER then
        error("authguard: malformed members")
      end
    end
    limits[i] = open(at, spec, member, overrides, share, holds, now, base)
    at = at + limits[i].keys
  end
  return limits
end
