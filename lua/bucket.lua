-- bucket: what a token bucket and a leaky bucket share, a level that falls at a steady rate.
--
-- own     limit (places it holds), rate, period (ms): `rate` places drain in `period`
-- value   29 bytes, big-endian: as of (6, ms) · level (7) · the period it is reckoned by (6) · the
--         rate (4) · since when it has had these two, or was cleared (6, ms; 0 = always)
-- life    until the level has drained; at least as long after `since` as a full one takes to drain
-- cost    O(1) each
--
-- The level is a whole number of parts: a place is `period` of them, and each millisecond drains
-- `rate`. So nothing is rounded and nothing drifts, however often it is asked. If the period is
-- another one by now, the level is reckoned over, rounded up by less than one of the new parts.
-- A time that lies ahead can only come from a clock that stepped back: the level drains from now
-- on, so that it admits nothing more.

local FORMAT, SIZE = ">I6I7I6I4I6", 29

local function converted(level, from, to)
  local whole, rest = math.floor(level / from), level % from
  return whole * to + math.ceil(rest / from * to)
end

-- Read the key; writes nothing.
-- -> the limit, and the key behind its own
local function open(at, _, limit, rate, period)
  local self = {
    key = KEYS[at], limit = limit, rate = rate, period = period,
    window = math.ceil(limit * period / rate), level = 0, since = 0, delay = false,
    found = false, repaired = false,
    algorithm = false, weight = false, terms = false, -- as open_limits.lua says
  }
  local value = redis.call("GET", self.key)
  if value then
    if #value ~= SIZE then
      error("authguard: malformed bucket")
    end
    self.found = true
    local as_of, level, period, rate, since = struct.unpack(FORMAT, value)
    if period < 1 or rate < 1 then
      error("authguard: malformed bucket")
    end
    self.since = math.min(now, since)
    if period ~= self.period then
      level = converted(level, period, self.period)
    end
    if period ~= self.period or rate ~= self.rate then
      self.since = now - 1 -- what is charged by this very call has the new ones
    end
    self.repaired = as_of > now
    local age = math.max(0, now - as_of)
    self.level = age * self.rate < level and level - age * self.rate or 0
  end
  return self, at + 1
end

local function drained_in(self, level)
  return math.ceil(level / self.rate)
end

local function save(self)
  local life = drained_in(self, self.level)
  if self.since > 0 then
    life = math.max(life, self.since + self.window - now)
  end
  if life == 0 then
    redis.call("DEL", self.key)
    return
  end
  local value = struct.pack(FORMAT, now, self.level, self.period, self.rate, self.since)
  redis.call("SET", self.key, value, "PXAT", life + base)
end

local function refuses(self, cost)
  return self.level + cost * self.period > self.limit * self.period
end

-- Milliseconds until what is in it now has drained.
local function wait_to_drain(self)
  return drained_in(self, self.level)
end

local function charge(self, cost)
  self.level = self.level + cost * self.period
  save(self)
end

-- A refused attempt leaves no trace; what a stepped-back clock made is mended, and no key lives
-- for ever.
local function refused(self)
  if self.found and (self.repaired or redis.call("PTTL", self.key) == -1) then
    save(self)
  end
end

-- -> state (0 admits, 1 full), remaining, wait (ms, -1 never), reset (ms until it is drained)
local function verdict(self, refuses, cost)
  local room = self.limit * self.period - self.level
  local remaining, wait = math.max(0, math.floor(room / self.period)), 0
  if refuses then
    wait = cost > self.limit and -1 or drained_in(self, cost * self.period - room)
  end
  return refuses and 1 or 0, remaining, wait, drained_in(self, self.level)
end

-- Take out so many parts.
local function give_back(self, parts)
  self.level = math.max(0, self.level - parts)
  save(self)
end

-- -> entries freed, locks ended
local function clear(self)
  local freed = math.ceil(self.level / self.period)
  if self.level > 0 then
    self.level, self.since = 0, now
    save(self)
  end
  return freed, 0
end

-- As sliding_log.inspect; a bucket knows no times, and there is no lock.
local function inspect(self)
  local taken = math.ceil(self.level / self.period)
  local frees = taken > 0 and drained_in(self, self.level - (taken - 1) * self.period) or 0
  return taken, 0, frees, 0, 0, 0
end

return {
  open = open, refuses = refuses, charge = charge, refused = refused, verdict = verdict,
  clear = clear, inspect = inspect, wait_to_drain = wait_to_drain, give_back = give_back,
}
