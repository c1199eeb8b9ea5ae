-- open_limits: reads and checks all limits of a call, before any verb writes.
--
-- given    the plan: bytes, big-endian
--            1, 1, 2, 2   how many keys tell overrides and the load, how many limits and blocks
--            2, 7         the load's share (thousandths) and end (ms, 0 = none), where no key tells it:
--                         on a cluster
--            for each limit
--              1, 1       its algorithm's number, flags: 1 = elastic, 2 = heeds overrides
--              4, 2       weight (places one of the cost takes), how many bytes follow
--              …          its algorithm's own numbers, seven bytes each; of a list, two bytes for
--                         its length in bytes, and seven for each of its numbers
--              …          its name, if it heeds overrides
--          members, 6 bytes for each limit that tells values apart, in turn
--          KEYS are shared out in turn: overrides, loads, limits, blocks
-- returns  a list with each limit's state, as its algorithm's `open` gives it, besides
--            algorithm    what answers for it
--            weight
--            terms        nothing, or where an override or the load changes it (terms.lua)
--              ends       when its override ends (ms), 0 if it has none
--              exempt     whether that exempts
--              whole      the limit without the load, if that scales it
--              wait       ms until it admits, if so many would be without its override's end
--          the first block's place in KEYS, and how many there are (blocks.lua)
-- cost     the sum of the algorithms' `open`
--
-- An error here (a wrong type, a malformed value, a missing permission) leaves no half state.

local HEAD, LIMIT, MEMBER = ">BBI2I2I2I7", ">BBI4I2", 6

local function open_limits(plan, members)
  local overrides, loads, count, blocks, share, ends, from = struct.unpack(HEAD, plan)
  local at, member_at, changed = 1 + overrides + loads, 1, now < ends
  for key = 1, overrides + loads do
    changed = redis.call("GET", KEYS[key]) or changed
  end
  if changed then
    changed = terms().of(overrides, loads, share, ends)
  end
  local limits = { string.byte(plan, 1, count) } -- room for them: a table that grows is copied
  for i = 1, count do
    local kind, flags, weight, size, own_at = struct.unpack(LIMIT, plan, from)
    local algorithm, member, limit = algorithms[kind], nil, nil
    from = own_at + size
    if algorithm.tells_apart then
      member = string.sub(members, member_at, member_at + MEMBER - 1)
      member_at = member_at + MEMBER
      if #member ~= MEMBER then
        error("authguard: malformed members")
      end
    end
    if changed and flags > 0 then
      limit, at = changed(algorithm, flags, at, member, string.sub(plan, own_at, from - 1))
    else
      limit, at = algorithm.open(at, member, struct.unpack(algorithm.own, plan, own_at))
      limit.algorithm = algorithm
    end
    limit.weight = weight
    limits[i] = limit
  end
  return limits, at, blocks
end
