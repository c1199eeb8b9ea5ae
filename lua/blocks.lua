-- blocks: asks what operators have blocked, beside the limits of an attempt.
--
-- given    the first block's place in KEYS, and how many there are (open_limits.lua)
-- returns  all of them (block.lua) if one refuses; else nothing
-- cost     O(blocks)

local function blocks(first, count)
  local found = false
  for at = first, first + count - 1 do
    found = redis.call("GET", KEYS[at]) or found
  end
  if not found then
    return nil
  end
  local algorithm, all, refuse = block(), {}, false
  for at = first, first + count - 1 do
    local it = algorithm.open(at)
    it.algorithm = algorithm
    all[#all + 1], refuse = it, refuse or algorithm.refuses(it)
  end
  return refuse and all or nil
end
