-- conversion: a breaker on messages with codes; locks if too few of the last codes were entered.
--
-- own     {least, of, lockout (ms), life of a code (ms), entered}
--         entered: 1 = a settle says that the code was entered; 0 = that it was never sent
-- keys    one
-- value   big-endian: lock's end (6, ms; 0 = none) · set at (6, ms) · newest attempt (6, ms) ·
--         number of finished codes (1) · one byte for each, the oldest first, 1 = entered ·
--         pending codes, the oldest first: sent at (5, times.lua) · the attempt's id (5)
-- life    until the lock's end; without a lock until nothing was sent for one lockout and one life
-- cost    O(of) each; at most `of` finished and `of` pending codes are kept
--
-- A code is finished when it was entered, or when its life is over. The attempt that finds `of`
-- finished codes, fewer than `least` of them entered, is admitted and sets the lock, which
-- empties the log. While `of` are pending, further attempts are admitted and not followed: the log
-- is a sample. What an attempt costs makes no difference: it is one message.
-- Its id alone names a code to its settle: the flow that sends codes makes ids of 40 random bits.
-- Times later than now can only come from a clock that stepped back, and are drawn in to now, and a
-- lock's end to one lockout from now: it refuses for at most one lockout more.

local HEAD, SIZE = ">I6I6I6B", 19
local PENDING, ID_AT = 10, 6

local conversion = {}

local function finish(self, how)
  self.finished = string.sub(self.finished .. how, -self.of)
end

local function locked(self)
  return self.now < self.ends
end

-- Read the key and finish what is over; writes nothing.
function conversion.open(at, own, now, base)
  local self = { now = now, base = base, key = KEYS[at], keys = 1 }
  self.least, self.of, self.lockout, self.life = own[1], own[2], own[3], own[4]
  self.limit, self.entered = self.of, own[5] == 1
  self.window, self.quiet = self.lockout, self.lockout + self.life
  self.ends, self.set_at, self.newest, self.finished, self.pending = 0, 0, 0, "", {}
  local value = redis.call("GET", self.key)
  if not value then
    return self
  end
  if #value < SIZE then
    error("authguard: malformed conversion")
  end
  local ends, set_at, newest, finished = struct.unpack(HEAD, value)
  if #value < SIZE + finished or (#value - SIZE - finished) % PENDING ~= 0 then
    error("authguard: malformed conversion")
  end
  self.found, self.repaired = true, newest > now or set_at > now or ends > now + self.lockout
  if now < ends then
    self.ends, self.set_at = math.min(ends, now + self.lockout), math.min(set_at, now)
  end
  self.newest = math.min(newest, now)
  if locked(self) or now >= self.newest + self.quiet then
    return self
  end
  finished = string.sub(value, SIZE + 1, SIZE + finished)
  self.finished = string.sub(finished, -self.of)
  for from = SIZE + #finished + 1, #value, PENDING do
    local age = times.age(value, from, now)
    if age >= self.life then
      finish(self, "\0")
    else
      local id = string.sub(value, from + ID_AT - 1, from + PENDING - 1)
      self.pending[#self.pending + 1] = { sent_at = now - math.max(0, age), id = id }
    end
  end
  return self
end

local function save(self)
  if not locked(self) and self.finished == "" and #self.pending == 0 then
    redis.call("DEL", self.key)
    return
  end
  local head = struct.pack(HEAD, self.ends, self.set_at, self.newest, #self.finished)
  local parts = { head, self.finished }
  for _, it in ipairs(self.pending) do
    parts[#parts + 1] = times.stamp(it.sent_at) .. it.id
  end
  local until_ = locked(self) and self.ends or self.newest + self.quiet
  redis.call("SET", self.key, table.concat(parts), "PXAT", until_ - self.now + self.base)
end

function conversion.refuses(self)
  return locked(self)
end

function conversion.charge(self, _, id)
  self.newest = self.now
  local _, entered = string.gsub(self.finished, "\1", "")
  if #self.finished >= self.of and entered < self.least then
    self.ends, self.set_at, self.lock_set = self.now + self.lockout, self.now, true
    self.finished, self.pending = "", {}
  elseif #self.pending < self.of then
    self.pending[#self.pending + 1] = { sent_at = self.now, id = id }
  end
  save(self)
end

-- A refused attempt leaves no trace; what a stepped-back clock made is mended, and no key lives
-- for ever.
function conversion.refused(self)
  if self.found and (self.repaired or redis.call("PTTL", self.key) == -1) then
    save(self)
  end
end

-- -> state (0 admits, 2 locked, 3 admitted and set the lock), remaining (0 or `of`), wait (ms),
--    reset (ms until it holds nothing)
function conversion.verdict(self, refuses)
  if locked(self) then
    local wait = self.ends - self.now
    return refuses and 2 or (self.lock_set and 3 or 0), 0, refuses and wait or 0, wait
  end
  local holds = self.finished ~= "" or #self.pending > 0
  return 0, self.of, 0, holds and self.newest + self.quiet - self.now or 0
end

-- The code was entered, or never sent. A second time it finds nothing.
-- -> entries freed, locks lifted
function conversion.settle(self, _, id)
  for i, it in ipairs(self.pending) do
    if it.id == id then
      table.remove(self.pending, i)
      if self.entered then
        finish(self, "\1")
      end
      save(self)
      return 1, 0
    end
  end
  return 0, 0
end

-- -> entries freed, locks ended
function conversion.clear(self)
  redis.call("DEL", self.key)
  return #self.finished + #self.pending, locked(self) and 1 or 0
end

-- As sliding_log.inspect; used are the finished codes that it judges by.
function conversion.inspect(self)
  local held = self.finished ~= "" or #self.pending > 0
  local newest = held and self.newest or 0
  if locked(self) then
    return 0, 0, self.ends - self.now, self.ends, 0, self.set_at
  end
  return #self.finished, newest, 0, 0, 0, 0
end

return conversion
