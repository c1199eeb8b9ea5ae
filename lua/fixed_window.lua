-- fixed_window: at most `limit` places in each window of the clock, aligned to the epoch in UTC, or
-- to the days or months of a time zone.
--
-- own     limit, window (ms), kept (places of the limit that are not this attempt's to use),
--         calendar (0 none, 1 day, 2 month), offsets (calendar.lua)
-- keys    one
-- value   17 bytes, big-endian: the window's end (6, ms) · places used (5) · cleared at (6, ms; 0 =
--         never)
-- life    until the window's end
-- cost    O(1) each
--
-- Two bursts may meet where windows do: up to twice the limit within one window's length.
-- A window that ends later than the next one would can only come from a clock that stepped back:
-- its end is drawn in to the next one's, and its places go on counting, so that it refuses for at
-- most one window more and never admits more.
-- A counter can't name its entries: whoever settles an attempt must do so once. What was reserved
-- before an operator cleared it has nothing to take back.

local FORMAT, SIZE = ">I6I5I6", 17

local function end_of(self, time)
  if self.calendar > 0 then
    return calendar().end_of(self.calendar, self.offsets, time)
  end
  return time - time % self.window + self.window
end

-- Read the key; writes nothing.
-- -> the limit, and the key behind its own
local function open(at, _, limit, window, kept, unit, offsets)
  local self = {
    key = KEYS[at], limit = limit, window = window, most = math.max(0, limit - kept),
    calendar = unit, offsets = offsets, ends = 0, used = 0, cleared_at = 0,
    found = false, repaired = false,
    algorithm = false, weight = false, terms = false, -- as open_limits.lua says
  }
  self.ends = end_of(self, now)
  local value = redis.call("GET", self.key)
  if value then
    if #value ~= SIZE then
      error("authguard: malformed window")
    end
    self.found = true
    local ends, used, cleared_at = struct.unpack(FORMAT, value)
    if now < ends then
      local latest = end_of(self, self.ends)
      self.repaired = ends > latest
      self.ends, self.used, self.cleared_at = math.min(ends, latest), used, math.min(now, cleared_at)
    end
  end
  return self, at + 1
end

local function save(self)
  if self.used == 0 and self.cleared_at == 0 then
    redis.call("DEL", self.key)
    return
  end
  local value = struct.pack(FORMAT, self.ends, self.used, self.cleared_at)
  redis.call("SET", self.key, value, "PXAT", self.ends - now + base)
end

local function refuses(self, cost)
  return self.used + cost > self.most
end

local function charge(self, cost)
  self.used = self.used + cost
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
  local left = self.ends - now
  local reset = self.used > 0 and left or 0
  local remaining = math.max(0, self.most - self.used)
  if not refuses then
    return 0, remaining, 0, reset
  end
  return 1, remaining, cost > self.most and -1 or left, reset
end

-- An attempt takes its places back while its own window still runs.
-- -> entries freed, locks lifted
local function settle(self, set_at, _, cost)
  local over = set_at > now or set_at <= self.cleared_at
  if over or end_of(self, set_at) ~= self.ends then
    return 0, 0
  end
  local freed = math.min(cost, self.used)
  if freed > 0 then
    self.used = self.used - freed
    save(self)
  end
  return freed, 0
end

-- -> entries freed, locks ended
local function clear(self)
  local freed = self.used
  if freed > 0 then
    self.used, self.cleared_at = 0, now
    save(self)
  end
  return freed, 0
end

-- As sliding_log.inspect; a counter knows no times, and there is no lock.
local function inspect(self)
  return self.used, 0, self.used > 0 and self.ends - now or 0, 0, 0, 0
end
