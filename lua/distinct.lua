-- distinct: at most `limit` different values in any window, to the millisecond.
--
-- own     {limit, window (ms), forgives (1 = a success takes its value out)}
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
local NOBODY = string.rep("\0", 5)

local distinct = { tells_apart = true }

-- Read the log's entries that count; writes nothing.
function distinct.open(at, own, now, base, member)
  local self = { now = now, base = base, key = KEYS[at], keys = 1, member = member }
  self.limit, self.window, self.forgives, self.entries = own[1], own[2], own[3] == 1, {}
  local log = redis.call("GET", self.key) or ""
  if #log % ENTRY ~= 0 then
    error("authguard: malformed log")
  end
  self.found = #log > 0
  for from = 1, #log, ENTRY do
    local latest, previous = now - times.age(log, from, now), nil
    if string.sub(log, from + PREVIOUS_AT - 1, from + MEMBER_AT - 2) ~= times.NONE then
      previous = math.min(now, now - times.age(log, from + PREVIOUS_AT - 1, now))
    end
    self.repaired = self.repaired or latest > now
    latest = math.min(now, latest)
    if now - latest < self.window then
      local entry = { latest = latest, previous = previous }
      entry.member = string.sub(log, from + MEMBER_AT - 1, from + ID_AT - 2)
      entry.id = string.sub(log, from + ID_AT - 1, from + COUNT_AT - 2)
      entry.stand = string.byte(log, from + COUNT_AT - 1)
      self.entries[#self.entries + 1] = entry
      if entry.member == member then
        self.known = #self.entries
      end
    end
  end
  return self
end

local function counts(self, time)
  return time ~= nil and self.now - time < self.window
end

local function save(self)
  local parts = {}
  for i, it in ipairs(self.entries) do
    local previous = counts(self, it.previous) and times.stamp(it.previous) or times.NONE
    parts[i] = times.stamp(it.latest) .. previous .. it.member .. it.id .. string.char(it.stand)
  end
  if #parts == 0 then
    redis.call("DEL", self.key)
    return
  end
  local life = self.entries[#parts].latest + self.window - self.now
  redis.call("SET", self.key, table.concat(parts), "PXAT", life + self.base)
end

-- Put the entry in behind all that are no later.
local function insert(self, entry)
  local at = #self.entries + 1
  while at > 1 and self.entries[at - 1].latest > entry.latest do
    at = at - 1
  end
  table.insert(self.entries, at, entry)
end

function distinct.refuses(self)
  return self.known == nil and #self.entries >= self.limit
end

function distinct.charge(self, _, id)
  local before = self.known and table.remove(self.entries, self.known)
  insert(self, {
    latest = self.now, previous = before and before.latest, member = self.member, id = id,
    stand = math.min(MOST, before and before.stand + 1 or 1),
  })
  save(self)
end

-- A refused attempt leaves no trace; what a stepped-back clock made is mended, and no key lives
-- for ever.
function distinct.refused(self)
  if self.found and (self.repaired or redis.call("PTTL", self.key) == -1) then
    save(self)
  end
end

-- -> state (0 admits, 1 full), remaining (other values), wait (ms), reset (ms until all is free)
function distinct.verdict(self, refuses)
  local used = #self.entries
  local reset = used > 0 and self.entries[used].latest + self.window - self.now or 0
  local remaining = math.max(0, self.limit - used)
  if not refuses then
    return 0, remaining, 0, reset
  end
  local leaving = self.entries[used - self.limit + 1]
  return 1, remaining, leaving.latest + self.window - self.now, reset
end

-- The value's latest attempt takes itself back: out altogether where a success forgives, else the
-- value counts from the attempt before it (from its own time, if that one is not known any more)
-- while any stands. One that a later attempt has followed can't be told from others: it is one less
-- that stands. Done once for each attempt.
-- -> entries freed, locks lifted
function distinct.settle(self, set_at, id)
  local entry, made = self.entries[self.known], math.min(set_at, self.now)
  if entry == nil or not counts(self, made) or made > entry.latest then
    return 0, 0
  end
  local stand = entry.stand == MOST and MOST or entry.stand - 1
  local last = entry.latest == made and entry.id == id
  table.remove(self.entries, self.known)
  if stand == 0 or (last and self.forgives) then
    save(self)
    return 1, 0
  end
  local it = { latest = entry.latest, previous = entry.previous, member = entry.member }
  it.id, it.stand = entry.id, stand
  if last then
    it.latest = counts(self, entry.previous) and entry.previous or entry.latest
    it.previous, it.id = nil, NOBODY
  elseif entry.previous == made then
    it.previous = nil
  end
  insert(self, it)
  save(self)
  return 0, 0
end

-- -> entries freed, locks ended
function distinct.clear(self)
  redis.call("DEL", self.key)
  return #self.entries, 0
end

-- As sliding_log.inspect; there is no lock.
function distinct.inspect(self)
  local used = #self.entries
  if used == 0 then
    return 0, 0, 0, 0, 0, 0
  end
  return used, self.entries[used].latest, self.entries[1].latest + self.window - self.now, 0, 0, 0
end

return distinct
