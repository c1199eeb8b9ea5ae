-- distinct: at most `limit` different values in any window, to the millisecond.
--
-- own     limit, window (ms), forgives (1 = a success takes its value out)
-- keys    one; and six bytes of ARGV's members, which stand for the attempt's value
-- value   one string of entries, the least recent first, 22 bytes each, big-endian:
--           5  time of the value's latest attempt (times.lua)
--           5  time of the one before it, zero if there is none that counts
--           6  the member: what stands for the value
--           5  id of the latest attempt, zero if that one is given back
--           1  how many attempts on it stand, 255 = so many or more
-- life    until the newest entry leaves the window
-- cost    O(entries) each; at most `limit` entries are kept
--
-- A value counts from its latest attempt, for one window; one that counts already is always
-- admitted. What an attempt costs makes no difference. Times later than now can only come from a
-- clock that stepped back, and are drawn in to now: they refuse for at most one window more.

local ENTRY, MOST = 22, 255
local PREVIOUS_AT, MEMBER_AT, ID_AT, COUNT_AT = 6, 11, 17, 22
local NOBODY = "\0\0\0\0\0"
local NONE = "\0\0\0\0\0"

-- The byte at which the entry of this member begins, if there is one.
local function find(log, member)
  local at = string.find(log, member, 1, true)
  while at and at % ENTRY ~= MEMBER_AT do -- the bytes of something else
    at = string.find(log, member, at + 1, true)
  end
  return at and at - MEMBER_AT + 1
end

-- What few calls meet: entries that lie ahead are drawn in, and those that no longer count left out.
local function consider(self, log)
  local entries = {}
  self.drawn_in = self.newest < 0
  for at = 1, #log, ENTRY do
    local latest, previous = age(log, at), string.sub(log, at + PREVIOUS_AT - 1, at + MEMBER_AT - 2)
    if latest < 0 and previous ~= NONE and age(previous, 1) < 0 then
      previous = stamp_now
    end
    if latest < self.window then
      entries[#entries + 1] = (latest < 0 and stamp_now or string.sub(log, at, at + PREVIOUS_AT - 2))
        .. previous .. string.sub(log, at + MEMBER_AT - 1, at + ENTRY - 1)
    end
  end
  self.log, self.newest = table.concat(entries), math.max(0, self.newest)
end

-- Read the log; writes nothing.
-- -> the limit, and the key behind its own
local function open(at, member, limit, window, forgives)
  local log = redis.call("GET", KEYS[at]) or ""
  local self = {
    at = at, limit = limit, window = window, forgives = forgives == 1, member = member,
    log = log, newest = 0, -- the entries that count, and how old the newest of all is (ms)
    known = nil, -- the byte at which that of the attempt's value begins
    algorithm = false, weight = false, -- as open_limits.lua says
  } -- and drawn_in, terms
  if log ~= "" then
    if #log % ENTRY ~= 0 then
      error("authguard: malformed log")
    end
    self.newest = age(log, #log - ENTRY + 1)
    if self.newest < 0 or age(log, 1) >= window then
      consider(self, log)
    end
    self.known = find(self.log, member)
  end
  return self, at + 1
end

-- Keep these entries, all of which count; of a time before, those that count alone.
local function save(self, log)
  for at = PREVIOUS_AT, #log, ENTRY do
    local previous = string.sub(log, at, at + MEMBER_AT - PREVIOUS_AT - 1)
    if previous ~= NONE and age(previous, 1) >= self.window then
      log = string.sub(log, 1, at - 1) .. NONE .. string.sub(log, at + MEMBER_AT - PREVIOUS_AT)
    end
  end
  self.log, self.known = log, find(log, self.member)
  if log == "" then
    redis.call("DEL", KEYS[self.at])
    return
  end
  self.newest = age(log, #log - ENTRY + 1)
  redis.call("SET", KEYS[self.at], log, "PXAT", self.window - self.newest + base)
end

local function refuses(self)
  return not self.known and #self.log >= self.limit * ENTRY
end

local function charge(self, _, id)
  local log, known, previous, stand = self.log, self.known, NONE, 1
  if known then
    previous = string.sub(log, known, known + PREVIOUS_AT - 2)
    stand = math.min(MOST, string.byte(log, known + COUNT_AT - 1) + 1)
    log = string.sub(log, 1, known - 1) .. string.sub(log, known + ENTRY)
  end
  save(self, log .. stamp_now .. previous .. self.member .. id .. string.char(stand))
end

-- A refused attempt leaves no trace; what a stepped-back clock made is mended, and no key lives
-- for ever.
local function refused(self)
  local there = self.log ~= "" or self.newest > 0
  if self.drawn_in or (there and redis.call("PTTL", KEYS[self.at]) == -1) then
    save(self, self.log)
  end
end

-- -> state (0 admits, 1 full), remaining (other values), wait (ms), reset (ms until all is free)
local function verdict(self, refuses)
  local log = self.log
  local taken, reset = #log / ENTRY, log ~= "" and self.window - self.newest or 0
  local remaining = math.max(0, self.limit - taken)
  if not refuses then
    return 0, remaining, 0, reset
  end
  return 1, remaining, self.window - age(log, (taken - self.limit) * ENTRY + 1), reset
end

-- The value's latest attempt takes itself back: out altogether where a success forgives, else the
-- value counts from the attempt before it (from its own time, if that one is not known any more)
-- while any stands. One that a later attempt has followed can't be told from others: it is one less
-- that stands. Done once for each attempt.
-- -> entries freed, locks lifted
local function settle(self, set_at, id)
  local log, at, made = self.log, self.known, math.min(set_at, now)
  if not at or now - made >= self.window or made > now - age(log, at) then
    return 0, 0
  end
  local latest, previous = now - age(log, at), nil
  if string.sub(log, at + PREVIOUS_AT - 1, at + MEMBER_AT - 2) ~= NONE then
    previous = now - age(log, at + PREVIOUS_AT - 1)
  end
  local its_id = string.sub(log, at + ID_AT - 1, at + COUNT_AT - 2)
  local stand, last = string.byte(log, at + COUNT_AT - 1), latest == made and its_id == id
  local rest = string.sub(log, 1, at - 1) .. string.sub(log, at + ENTRY)
  stand = stand == MOST and MOST or stand - 1
  if stand == 0 or (last and self.forgives) then
    save(self, rest)
    return 1, 0
  end
  if last then
    latest = previous and now - previous < self.window and previous or latest
    previous, its_id = nil, NOBODY
  elseif previous == made then
    previous = nil
  end
  local to = #rest + 1 -- behind all that are no later
  while to > 1 and now - age(rest, to - ENTRY) > latest do
    to = to - ENTRY
  end
  local entry = stamp(latest) .. (previous and stamp(previous) or NONE) .. self.member .. its_id
  save(self, string.sub(rest, 1, to - 1) .. entry .. string.char(stand) .. string.sub(rest, to))
  return 0, 0
end

-- -> entries freed, locks ended
local function clear(self)
  redis.call("DEL", KEYS[self.at])
  return #self.log / ENTRY, 0
end

-- As sliding_log.inspect; there is no lock.
local function inspect(self)
  local log = self.log
  if log == "" then
    return 0, 0, 0, 0, 0, 0
  end
  return #log / ENTRY, now - self.newest, self.window - age(log, 1), 0, 0, 0
end
