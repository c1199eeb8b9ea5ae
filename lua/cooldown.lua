-- cooldown: after an admitted attempt the next one waits, longer for each one in a row.
--
-- own     waits (ms each, never falling)
-- keys    one
-- value   18 bytes, big-endian: last admitted at (6, ms) · level (1) · its id (5) ·
--         the one before it (6, ms; 0 = none)
-- life    until the level is forgotten: ten times the last wait after the last admitted attempt
-- cost    O(1) each
--
-- The n-th admitted in a row starts the n-th wait; the last wait repeats. What an attempt costs
-- makes no wait longer, and a refused one moves nothing. A last time that lies ahead can only come
-- from a clock that stepped back: it is drawn in to now, and refuses for at most one wait more.

local FORMAT, SIZE = ">I6Bc5I6", 18
local NOBODY = "\0\0\0\0\0"
local QUIET_WAITS = 10

-- The n-th of the waits; the last one repeats.
local function wait_of(waits, n)
  return (struct.unpack(">I7", waits, math.min(7 * n, #waits) - 6))
end

-- Read the key; writes nothing.
-- -> the limit, and the key behind its own
local function open(at, _, waits)
  local self = {
    key = KEYS[at], limit = 1, waits = waits, window = wait_of(waits, 1),
    quiet = QUIET_WAITS * wait_of(waits, #waits), found = false, repaired = false,
    last = 0, level = 0, id = NOBODY, previous = 0,
    algorithm = false, weight = false, terms = false, -- as open_limits.lua says
  }
  local value = redis.call("GET", self.key)
  if value then
    if #value ~= SIZE then
      error("authguard: malformed cooldown")
    end
    self.found = true
    self.last, self.level, self.id, self.previous = struct.unpack(FORMAT, value)
    if self.last > now then
      self.last, self.previous, self.repaired = now, math.min(self.previous, now), true
    end
    if now >= self.last + self.quiet then
      self.level = 0
    end
  end
  return self, at + 1
end

-- Milliseconds until the next attempt is admitted; 0 if it is now.
local function wait(self)
  if self.level == 0 then
    return 0
  end
  return math.max(0, self.last + wait_of(self.waits, self.level) - now)
end

local function save(self)
  local life = self.last + self.quiet - now
  if self.level == 0 or life <= 0 then
    redis.call("DEL", self.key)
    return
  end
  local value = struct.pack(FORMAT, self.last, self.level, self.id, self.previous)
  redis.call("SET", self.key, value, "PXAT", life + base)
end

local function refuses(self)
  return wait(self) > 0
end

local function charge(self, _, id)
  self.previous = self.level > 0 and self.last or 0
  self.last, self.level, self.id = now, math.min(self.level + 1, 255), id
  save(self)
end

-- A refused attempt moves nothing; what a stepped-back clock made is mended, and no key lives for
-- ever.
local function refused(self)
  if self.found and (self.repaired or redis.call("PTTL", self.key) == -1) then
    save(self)
  end
end

-- -> state (0 admits, 1 waits), remaining (0 or 1), wait (ms), reset (ms until the wait is over)
local function verdict(self, refuses)
  local left = wait(self)
  return refuses and 1 or 0, left > 0 and 0 or 1, refuses and left or 0, left
end

-- The last admitted attempt takes its wait back, once; all is as it was before it.
-- -> entries freed, locks lifted
local function settle(self, set_at, id)
  if self.level == 0 or self.last ~= math.min(set_at, now) or self.id ~= id then
    return 0, 0
  end
  self.last, self.level, self.id, self.previous = self.previous, self.level - 1, NOBODY, 0
  save(self)
  return 1, 0
end

-- -> entries freed, locks ended
local function clear(self)
  redis.call("DEL", self.key)
  return self.level > 0 and 1 or 0, 0
end

-- As sliding_log.inspect; there is no lock.
local function inspect(self)
  local left = wait(self)
  return left > 0 and 1 or 0, self.level > 0 and self.last or 0, left, 0, self.level, 0
end
