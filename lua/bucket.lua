-- bucket: what a token bucket and a leaky bucket share, a level that falls at a steady rate.
--
-- own     {limit (places it holds), rate, period (ms): `rate` places drain in `period`}
-- value   19 bytes, big-endian: as of (6, ms) · level (7) · the period it is reckoned by (6)
-- life    until the level has drained
-- cost    O(1) each
--
-- The level is a whole number of parts: a place is `period` of them, and each millisecond drains
-- `rate`. So nothing is rounded and nothing drifts, however often it is asked. If the period is
-- another one by now, the level is reckoned over, rounded up by less than one of the new parts.
-- A time that lies ahead can only come from a clock that stepped back: the level drains from now
-- on, so that it admits nothing more.

local FORMAT, SIZE = ">I6I7I6", 19

local bucket = { drains = true }

local function converted(level, from, to)
  local whole, rest = math.floor(level / from), level % from
  return whole * to + math.ceil(rest / from * to)
end

-- Read the key; writes nothing.
function bucket.open(at, own, now, slack)
  local self = { now = now, slack = slack, key = KEYS[at], keys = 1, level = 0 }
  self.limit, self.rate, self.period = own[1], own[2], own[3]
  self.window = math.ceil(self.limit * self.period / self.rate)
  local value = redis.call("GET", self.key)
  if value then
    if #value ~= SIZE then
      error("authguard: malformed bucket")
    end
    self.found = true
    local as_of, level, period = struct.unpack(FORMAT, value)
    if period ~= self.period then
      level = converted(level, period, self.period)
    end
    self.repaired = as_of > now
    local age = math.max(0, now - as_of)
    self.level = age * self.rate < level and level - age * self.rate or 0
  end
  return self
end

local function drained_in(self, level)
  return math.ceil(level / self.rate)
end

local function save(self)
  if self.level == 0 then
    redis.call("DEL", self.key)
    return
  end
  local value = struct.pack(FORMAT, self.now, self.level, self.period)
  redis.call("SET", self.key, value, "PX", drained_in(self, self.level) + self.slack)
end

function bucket.refuses(self, cost)
  return self.level + cost * self.period > self.limit * self.period
end

-- Milliseconds until what is in it now has drained.
function bucket.wait_to_drain(self)
  return drained_in(self, self.level)
end

function bucket.charge(self, cost)
  self.level = self.level + cost * self.period
  save(self)
end

-- A refused attempt leaves no trace; what a stepped-back clock made is mended, and no key lives
-- for ever.
function bucket.refused(self)
  if self.found and (self.repaired or redis.call("PTTL", self.key) == -1) then
    save(self)
  end
end

-- -> state (0 admits, 1 full), remaining, wait (ms, -1 never), reset (ms until it is drained)
function bucket.verdict(self, refuses, cost)
  local room = self.limit * self.period - self.level
  local remaining, wait = math.max(0, math.floor(room / self.period)), 0
  if refuses then
    wait = cost > self.limit and -1 or drained_in(self, cost * self.period - room)
  end
  return refuses and 1 or 0, remaining, wait, drained_in(self, self.level)
end

-- Take out so many parts.
function bucket.give_back(self, parts)
  self.level = math.max(0, self.level - parts)
  save(self)
end

-- -> entries freed, locks ended
function bucket.clear(self)
  redis.call("DEL", self.key)
  return math.ceil(self.level / self.period), 0
end

-- As sliding_log.inspect; a bucket knows no times, and there is no lock.
function bucket.inspect(self)
  local taken = math.ceil(self.level / self.period)
  local frees = taken > 0 and drained_in(self, self.level - (taken - 1) * self.period) or 0
  return taken, 0, frees, 0, 0, 0
end

-- A table of its functions, for an algorithm to put its own beside.
function bucket.derive()
  return setmetatable({}, { __index = bucket })
end

return bucket
