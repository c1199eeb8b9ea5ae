-- cooldown: after an admitted attempt the next one waits, longer for each one in a row.
--
-- own     {waits (ms each, never falling)}
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
local NOBODY = string.rep("\0", 5)
local QUIET_WAITS = 10

local cooldown = {}

-- Read the key; writes nothing.
function cooldown.open(at, own, now, base)
  local self = { now = now, base = base, key = KEYS[at], keys = 1, limit = 1, waits = own[1] }
  self.window, self.quiet = self.waits[1], QUIET_WAITS * self.waits[#self.waits]
  self.last, self.level, self.id, self.previous = 0, 0, NOBODY, 0
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
  return self
end

-- Milliseconds until the next attempt is admitted; 0 if it is now.
local function wait(self)
  if self.level == 0 then
    return 0
  end
  return math.max(0, self.last + self.waits[math.min(self.level, #self.waits)] - self.now)
end

local function save(self)
  local life = self.last + self.quiet - self.now
  if self.level == 0 or life <= 0 then
    redis.call("DEL", self.key)
    return
  end
  local value = struct.pack(FORMAT, self.last, self.level, self.id, self.previous)
  redis.call("SET", self.key, value, "PXAT", life + self.base)
end

function cooldown.refuses(self)
  return wait(self) > 0
end

function cooldown.charge(self, _, id)
  self.previous = self.level > 0 and self.last or 0
  self.last, self.level, self.id = self.now, math.min(self.level + 1, 255), id
  save(self)
end

-- A refused attempt moves nothing; what a stepped-back clock made is mended, and no key lives for
-- ever.
function cooldown.refused(self)
  if self.found and (self.repaired or redis.call("PTTL", self.key) == -1) then
    save(self)
  end
end

-- -> state (0 admits, 1 waits), remaining (0 or 1), wait (ms), reset (ms until the wait is over)
function cooldown.verdict(self, refuses)
  local left = wait(self)
  return refuses and 1 or 0, left > 0 and 0 or 1, refuses and left or 0, left
end

-- The last admitted attempt takes its wait back, once; all is as it was before it.
-- -> entries freed, locks lifted
function cooldown.settle(self, set_at, id)
  if self.level == 0 or self.last ~= math.min(set_at, self.now) or self.id ~= id then
    return 0, 0
  end
  self.last, self.level, self.id, self.previous = self.previous, self.level - 1, NOBODY, 0
  save(self)
  return 1, 0
end

-- -> entries freed, locks ended
function cooldown.clear(self)
  redis.call("DEL", self.key)
  return self.level > 0 and 1 or 0, 0
end

-- As sliding_log.inspect; there is no lock.
function cooldown.inspect(self)
  local left = wait(self)
  return left > 0 and 1 or 0, self.level > 0 and self.last or 0, left, 0, self.level, 0
end

return cooldown
