-- terms: what changes a limit's numbers for one call: an account's overrides, and the load.
--
-- overrides  the value of overrides' key (override.lua): JSON, name of a limit -> { algorithm,
--            ends (ms), numbers ({} = exempt), set at (ms) }; numbers take the place of the first of
--            the limit's own
-- load       a record (put.lua) whose value is the share of elastic limits that applies, in
--            thousandths
-- cost       O(1) each
--
-- Both stand under the key of every secret; the first that is found counts.

local HEAD, LOAD = ">I6I6", ">I2"

local terms = {}

function terms.overrides(first, keys)
  for at = first, first + keys - 1 do
    local value = redis.call("GET", KEYS[at])
    if value then
      return cjson.decode(value)
    end
  end
  return {}
end

-- -> the share in thousandths, and for how long it still holds (ms); 1000 and 0 where there is none
function terms.load(first, keys, now)
  for at = first, first + keys - 1 do
    local value = redis.call("GET", KEYS[at])
    if value then
      local ends, made, from = struct.unpack(HEAD, value)
      if now < made then -- the clock has stepped back: it holds for its whole length from now
        ends = now + ends - made
      end
      if now < ends then
        return struct.unpack(LOAD, value, from), ends - now
      end
    end
  end
  return 1000, 0
end

-- -> own with an override's numbers in; when that ends (ms; nil if there is none); whether it exempts
function terms.override(overrides, name, algorithm, own, now)
  local it = overrides[name]
  if not it or it[1] ~= algorithm or now >= it[2] then
    return own, nil, false
  end
  local overridden = { unpack(own) }
  for at, number in ipairs(it[3]) do
    overridden[at] = number
  end
  return overridden, it[2], #it[3] == 0
end

-- -> own, with so many thousandths of the limit, rounded up; what drains does so as much slower
function terms.scaled(own, share, drains)
  local scaled = { unpack(own) }
  scaled[1] = math.ceil(own[1] * share / 1000)
  if drains and share > 0 then
    scaled[3] = math.ceil(own[3] * 1000 / share)
  end
  return scaled
end

-- An exempt limit admits and counts nothing. What was counted before can still be seen, given back
-- and cleared; whoever was admitted exempt must not settle it.
function terms.exempt(algorithm)
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
function terms.elastic(algorithm, whole, holds)
  local elastic = {}
  -- -> state (4 refuses by the load alone), remaining, wait (ms, -1 never), reset (ms)
  function elastic.verdict(limit, refuses, cost)
    local state, remaining, wait, reset = algorithm.verdict(limit, refuses, cost)
    if not refuses then
      return state, remaining, wait, reset
    end
    local whole_refuses, until_whole = algorithm.refuses(whole, cost), 0
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

return terms
