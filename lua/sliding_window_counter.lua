-- sliding_window_counter: at most `limit` places in a sliding window, as two counters estimate it.
--
-- own     limit, window (ms)
-- keys    one
-- value   28 bytes, big-endian: the current window's end (6, ms) · places used in it (5) · and in
--         the one before (5) · the window's length (6, ms) · cleared at (6, ms; 0 = never)
-- life    until the next window's end
-- cost    O(1) each
--
-- estimate = current + previous * (the share of the previous window that the sliding one still
-- covers), reckoned in places times ms, so that nothing is rounded. It takes the previous window's
-- places to be spread evenly: after a burst at one end it admits too few or too many, up to twice
-- the limit within one window's length.
-- A window that ends later than the one that runs can only come from a clock that stepped back; one of
-- another length from other numbers. Then both counts are taken to be of this window, whole, so that
-- it admits nothing more.
-- A counter can't name its entries: whoever settles an attempt must do so once. What was reserved
-- before an operator cleared it has nothing to take back.

local FORMAT, SIZE = ">I6I5I5I6I6", 28

local function end_of(window, time)
  return time - time % window + window
end

-- Read the key; writes nothing.
-- -> the limit, and the key behind its own
local function open(at, _, limit, window)
  local runs_until = end_of(window, now)
  local self = {
    key = KEYS[at], limit = limit, window = window, ends = runs_until, left = runs_until - now,
    current = 0, previous = 0, cleared_at = 0, found = false, repaired = false,
    algorithm = false, weight = false, terms = false, -- as open_limits.lua says
  }
  local value = redis.call("GET", self.key)
  if value then
    if #value ~= SIZE then
      error("authguard: malformed counters")
    end
    self.found = true
    local ends, current, previous, window, cleared_at = struct.unpack(FORMAT, value)
    if now >= ends + window then
      return self, at + 1
    end
    self.cleared_at = math.min(now, cleared_at)
    if ends > self.ends or window ~= self.window then
      self.current, self.repaired = current + previous, true
    elseif ends == self.ends then
      self.current, self.previous = current, previous
    else
      self.previous = current
    end
  end
  return self, at + 1
end

local function save(self)
  if self.current == 0 and self.previous == 0 and self.cleared_at == 0 then
    redis.call("DEL", self.key)
    return
  end
  local value = struct.pack(
    FORMAT, self.ends, self.current, self.previous, self.window, self.cleared_at
  )
  local next_too = self.current > 0 or self.cleared_at > 0
  local life = self.left + (next_too and self.window or 0)
  redis.call("SET", self.key, value, "PXAT", life + base)
end

-- The estimate, in places times ms.
local function estimate(self)
  return self.current * self.window + self.previous * self.left
end

local function used(self)
  return math.ceil(estimate(self) / self.window)
end

-- Milliseconds until so many more places are free, if nobody takes any; -1 never.
local function wait(self, cost)
  local need = self.limit - cost -- the highest estimate that leaves room
  if need < 0 then
    return -1
  end
  if self.current <= need then
    local share = math.floor((need - self.current) * self.window / self.previous)
    return math.max(0, self.left - share)
  end
  return self.left + self.window - math.min(self.window, math.floor(need * self.window / self.current))
end

local function refuses(self, cost)
  return estimate(self) + cost * self.window > self.limit * self.window
end

local function charge(self, cost)
  self.current = self.current + cost
  save(self)
end

-- A refused attempt leaves no trace; what a stepped-back clock made is mended, and no key lives
-- for ever.
local function refused(self)
  if self.found and (self.repaired or redis.call("PTTL", self.key) == -1) then
    save(self)
  end
end

-- -> state (0 admits, 1 full), remaining, wait (ms, -1 never), reset (ms until all is free)
local function verdict(self, refuses, cost)
  local reset = 0
  if self.current > 0 then
    reset = self.left + self.window
  elseif self.previous > 0 then
    reset = self.left
  end
  local remaining = math.max(0, self.limit - used(self))
  return refuses and 1 or 0, remaining, refuses and wait(self, cost) or 0, reset
end

-- An attempt takes its places back while they still count.
-- -> entries freed, locks lifted
local function settle(self, set_at, _, cost)
  local freed, its_end = 0, end_of(self.window, set_at)
  if set_at > now or set_at <= self.cleared_at then
    return 0, 0
  elseif its_end == self.ends then
    freed = math.min(cost, self.current)
    self.current = self.current - freed
  elseif its_end == self.ends - self.window then
    freed = math.min(cost, self.previous)
    self.previous = self.previous - freed
  end
  if freed > 0 then
    save(self)
  end
  return freed, 0
end

-- -> entries freed, locks ended
local function clear(self)
  local freed = used(self)
  if self.current > 0 or self.previous > 0 then
    self.current, self.previous, self.cleared_at = 0, 0, now
    save(self)
  end
  return freed, 0
end

-- As sliding_log.inspect; counters know no times, and there is no lock.
local function inspect(self)
  local taken = used(self)
  local frees = taken > 0 and wait(self, self.limit - taken + 1) or 0
  return taken, 0, frees, 0, 0, 0
end
