-- conversion: a breaker on messages with codes; locks if too few of the last codes were entered.
--
-- own     least, of, lockout (ms), life of a code (ms), entered
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

local function finish(self, how)
  self.finished = string.sub(self.finished .. how, -self.of)
end

local function locked(self)
  return now < self.ends
end

-- Read the key and finish what is over; writes nothing.
-- -> the limit, and the key behind its own
local function open(at, _, least, of, lockout, life, entered)
  local self = {
    key = KEYS[at], least = least, of = of, lockout = lockout, life = life,
    entered = entered == 1, limit = of, window = lockout, quiet = lockout + life,
    ends = 0, set_at = 0, newest = 0, finished = "", pending = {},
    algorithm = false, weight = false, terms = false, -- as open_limits.lua says
  }
  local value = redis.call("GET", self.key)
  if not value then
    return self, at + 1
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
    return self, at + 1
  end
  finished = string.sub(value, SIZE + 1, SIZE + finished)
  self.finished = string.sub(finished, -self.of)
  for from = SIZE + #finished + 1, #value, PENDING do
    local since = age(value, from)
    if since >= self.life then
      finish(self, "\0")
    else
      local id = string.sub(value, from + ID_AT - 1, from + PENDING - 1)
      self.pending[#self.pending + 1] = { sent_at = now - math.max(0, since), id = id }
    end
  end
  return self, at + 1
end

local function save(self)
  if not locked(self) and self.finished == "" and #self.pending == 0 then
    redis.call("DEL", self.key)
    return
  end
  local head = struct.pack(HEAD, self.ends, self.set_at, self.newest, #self.finished)
  local parts = { head, self.finished }
  for _, it in ipairs(self.pending) do
    parts[#parts + 1] = stamp(it.sent_at) .. it.id
  end
  local until_ = locked(self) and self.ends or self.newest + self.quiet
  redis.call("SET", self.key, table.concat(parts), "PXAT", until_ - now + base)
end

local function refuses(self)
  return locked(self)
end

local function charge(self, _, id)
  self.newest = now
  local _, entered = string.gsub(self.finished, "\1", "")
  if #self.finished >= self.of and entered < self.least then
    self.ends, self.set_at, self.lock_set = now + self.lockout, now, true
    self.finished, self.pending = "", {}
  elseif #self.pending < self.of then
    self.pending[#self.pending + 1] = { sent_at = now, id = id }
  end
  save(self)
end

-- A refused attempt leaves no trace; what a stepped-back clock made is mended, and no key lives
-- for ever.
local function refused(self)
  if self.found and (self.repaired or redis.call("PTTL", self.key) == -1) then
    save(self)
  end
end

-- -> state (0 admits, 2 locked, 3 admitted and set the lock), remaining (0 or `of`), wait (ms),
--    reset (ms until it holds nothing)
local function verdict(self, refuses)
  if locked(self) then
    local wait = self.ends - now
    return refuses and 2 or (self.lock_set and 3 or 0), 0, refuses and wait or 0, wait
  end
  local holds = self.finished ~= "" or #self.pending > 0
  return 0, self.of, 0, holds and self.newest + self.quiet - now or 0
end

-- The code was entered, or never sent. A second time it finds nothing.
-- -> entries freed, locks lifted
local function settle(self, _, id)
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
local function clear(self)
  redis.call("DEL", self.key)
  return #self.finished + #self.pending, locked(self) and 1 or 0
end

-- As sliding_log.inspect; used are the finished codes that it judges by.
local function inspect(self)
  local held = self.finished ~= "" or #self.pending > 0
  local newest = held and self.newest or 0
  if locked(self) then
    return 0, 0, self.ends - now, self.ends, 0, self.set_at
  end
  return #self.finished, newest, 0, 0, 0, 0
end
