-- terms: what changes a limit's numbers for one call: an account's overrides, and the load.
--
-- overrides  the value of overrides' key (override.lua): JSON, name of a limit -> { algorithm,
--            ends (ms), numbers (0 = exempt), set at (ms) }; numbers take the place of the first of
--            the limit's own
-- load       a record (put.lua) whose value is the share of elastic limits that applies, in
--            thousandths
-- cost       O(keys) each
--
-- Both stand under the key of every secret; what was set last counts. What was set later than now
-- can only come from a clock that stepped back: it holds no longer, since nobody can tell when it
-- would end.

local HEAD, LOAD, WHOLE = ">I6I6", ">I2", 1000
local EXEMPT, ELASTIC, HEEDS_OVERRIDES = 0, 1, 2

local terms = {}

local function check_override(it)
  local well = type(it) == "table" and type(it[1]) == "string" and type(it[2]) == "number"
    and type(it[4]) == "number" and (it[3] == EXEMPT or type(it[3]) == "table" and #it[3] > 0)
  for _, number in ipairs(well and it[3] ~= EXEMPT and it[3] or {}) do
    well = well and (type(number) == "table" or type(number) == "number" and number >= 1)
  end
  if not well then
    error("authguard: malformed overrides")
  end
end

-- All that hold now, of every key.
function terms.overrides(first, keys)
  local all = {}
  for at = first, first + keys - 1 do
    local value = redis.call("GET", KEYS[at])
    local stored = {}
    if value then
      stored = cjson.decode(value)
    end
    if type(stored) ~= "table" then
      error("authguard: malformed overrides")
    end
    for name, it in pairs(stored) do
      check_override(it)
      local other = all[name]
      if now >= it[4] and now < it[2] and not (other and other[4] > it[4]) then
        all[name] = it
      end
    end
  end
  return all
end

-- -> the share in thousandths, for how long it still holds (ms), and when it was said (ms);
--    1000, 0 and 0 where there is none
function terms.load(first, keys)
  local share, holds, newest = WHOLE, 0, 0
  for at = first, first + keys - 1 do
    local value = redis.call("GET", KEYS[at])
    if value then
      local ends, made, from = struct.unpack(HEAD, value)
      local said = struct.unpack(LOAD, value, from)
      if said > WHOLE then
        error("authguard: malformed load")
      end
      if now >= made and now < ends and made >= newest then
        share, holds, newest = said, ends - now, made
      end
    end
  end
  return share, holds, newest
end

-- A list as the plan has it.
local function packed(numbers)
  local bytes = {}
  for i, number in ipairs(numbers) do
    bytes[i] = struct.pack(">I7", number)
  end
  return table.concat(bytes)
end

-- -> own with an override's numbers in; when that ends (ms; nil if there is none); whether it exempts
local function override(overrides, name, algorithm, own)
  local it = overrides[name]
  if not it or it[1] ~= algorithm then
    return own, nil, false
  end
  if it[3] == EXEMPT then
    return own, it[2], true
  end
  local overridden = { unpack(own) }
  for at, number in ipairs(it[3]) do
    overridden[at] = type(number) == "table" and packed(number) or number
  end
  return overridden, it[2], false
end

-- -> own, with so many thousandths of the limit, rounded up; what drains does so as much slower
local function scale(own, share, drains)
  local scaled = { unpack(own) }
  scaled[1] = math.ceil(own[1] * share / 1000)
  if drains and share > 0 then
    scaled[3] = math.ceil(own[3] * 1000 / share)
  end
  return scaled
end

-- An exempt limit admits and counts nothing. What was counted before can still be seen, given back
-- and cleared; whoever was admitted exempt must not settle it.
local function exempt_from(algorithm)
  local exempt = {}
  function exempt.refuses()
    return false
  end
  function exempt.charge() end
  function exempt.refused() end
  -- -> state (5 exempt), remaining, wait (ms), reset (ms)
  function exempt.verdict(limit)
    return 5, limit.limit, 0, 0
  end
  return setmetatable(exempt, { __index = algorithm })
end

-- A scaled limit refuses by the load alone where the whole one would admit; that ends with the load.
local function under_load(algorithm, holds)
  local elastic = {}
  -- -> state (4 refuses by the load alone), remaining, wait (ms, -1 never), reset (ms)
  function elastic.verdict(limit, refuses, cost)
    local state, remaining, wait, reset = algorithm.verdict(limit, refuses, cost)
    if not refuses then
      return state, remaining, wait, reset
    end
    local whole, until_whole = limit.terms.whole, 0
    local whole_refuses = algorithm.refuses(whole, cost)
    if whole_refuses then
      local _
      _, _, until_whole = algorithm.verdict(whole, true, cost)
    end
    if until_whole >= 0 then
      until_whole = math.max(holds, until_whole)
      wait = wait < 0 and until_whole or math.min(wait, until_whole)
    end
    return whole_refuses and state or 4, remaining, wait, reset
  end
  return setmetatable(elastic, { __index = algorithm })
end

-- Milliseconds until a limit admits, if that is only once its override has ended; -1 never. `after` is
-- the limit as it is then.
local function wait_after(after, ends, cost)
  local wait = 0
  if after.algorithm.refuses(after, cost) then
    local _
    _, _, wait = after.algorithm.verdict(after, true, cost)
  end
  return wait < 0 and wait or math.max(wait, ends - now)
end

-- What opens the limits of a call under the overrides and the load that its first keys tell, or under
-- the load that its plan tells: as open_limits.lua does, of a limit's own numbers and its name.
function terms.of(overrides, loads, told, ends)
  local found = terms.overrides(1, overrides)
  local share, holds = terms.load(1 + overrides, loads)
  if now < ends then
    share, holds = told, ends - now
  end

  local function open(algorithm, flags, at, member, own, name, by)
    local numbers, until_, exempt = own, nil, false
    if flags >= HEEDS_OVERRIDES then
      numbers, until_, exempt = override(by, name, algorithm.name, own)
    end
    local limit, whole, behind
    if flags % 2 == ELASTIC and share < WHOLE then
      local scaled = scale(numbers, share, algorithm.drains)
      limit = algorithm.open(at, member, unpack(scaled))
      whole, behind = algorithm.open(at, member, unpack(numbers))
      limit.algorithm = under_load(algorithm, holds)
    else
      limit, behind = algorithm.open(at, member, unpack(numbers))
      limit.algorithm = algorithm
    end
    if exempt then
      limit.algorithm = exempt_from(limit.algorithm)
    end
    if until_ or whole then
      limit.terms = { ends = until_ or 0, exempt = exempt, whole = whole }
      limit.terms.wait = function(wait, cost)
        if until_ and (wait < 0 or now + wait >= until_) then
          return wait_after((open(algorithm, flags, at, member, own, name, {})), until_, cost)
        end
        return wait
      end
    end
    return limit, behind
  end

  return function(algorithm, flags, at, member, bytes)
    local own = { struct.unpack(algorithm.own, bytes) }
    local name = string.sub(bytes, table.remove(own))
    return open(algorithm, flags, at, member, own, name, found)
  end
end

return terms
