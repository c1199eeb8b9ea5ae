-- sliding_log: at most `limit` admitted attempts in any window, to the millisecond.
--
-- own     limit, window (ms), flags, lockouts (none, or ms each)
--         flags: 1 = a refused attempt is counted too, 2 = a success forgives its client's
--         failures, 4 = it counts by account and client together, and heeds the account's pardon
-- keys    the log; with lockouts also its lock (lock.lua); with 4 also the pardon (pardon.lua)
-- value   one string of entries, oldest first, 10 bytes each, big-endian:
--           5  time in ms (times.lua)
--           3  tag of the client        the two make the attempt's id; an attempt of
--           2  nonce of the attempt     cost c is c equal entries
-- life    the key lives exactly as long as its newest entry can matter
-- cost    O(log entries) to ask, O(entries) bytes copied to charge; at most `limit` entries are kept
--
-- An entry made at t counts while now < t + window. Times never fall along the log: entries later
-- than now can only come from a clock that stepped back, and are drawn in to now, so that they
-- refuse for at most one window more.
-- Everything is read and checked before anything is written, so an error leaves no half state.

local ENTRY, ID_AT, TAG_END = 10, 6, 8
local COUNT_REFUSED, FORGIVE, PARDON = 1, 2, 4
local NOBODY = "\0\0\0\0\0"

local locks -- the functions of lock.lua; there are none where no lock is

-- What few calls meet: a lock, a pardon, entries that lie ahead, or that no longer count.
-- `pardon` is when an operator let the account go on from wherever it comes (pardon.lua). One that
-- lies ahead can only come from a clock that stepped back: it is drawn in to now, so that what is
-- made from here on counts.
local function consider(self, log, lock_found, pardon_found)
  local lock_key, pardon_key = KEYS[self.at + 1], KEYS[self.at + (self.lockouts and 2 or 1)]
  if lock_found then
    locks = lock()
    self.lock = locks.open(lock_found, lock_key, self.lockouts, self.window)
  end
  if log ~= "" and self.newest < 0 then
    local entries = {}
    for at = 1, #log, ENTRY do
      local it = string.sub(log, at, at + ENTRY - 1)
      entries[#entries + 1] = age(it, 1) < 0 and stamp_now .. string.sub(it, ID_AT) or it
    end
    if self.lock and now - self.newest >= self.lock.stored_ends then
      locks.has_ended(self.lock)
    end
    log, self.newest = table.concat(entries), 0
    self.drawn_in = log
  end
  local pardon, ahead, span = nil, false, self.window
  if pardon_found then
    if #pardon_found ~= 6 then
      error("authguard: malformed pardon")
    end
    pardon = struct.unpack(">I6", pardon_found)
    ahead, pardon = pardon > now, math.min(pardon, now)
    span = math.min(span, now - pardon + 1)
    if self.lock then
      locks.pardon(self.lock, pardon)
    end
  end
  if self.lock and now >= self.lock.ends then
    span = math.min(span, now - self.lock.ends + 1) -- a lock that has ended leaves an empty log
  end
  local low, high = 0, #log / ENTRY
  while low < high do
    local middle = math.floor((low + high) / 2)
    if age(log, middle * ENTRY + 1) < span then
      high = middle
    else
      low = middle + 1
    end
  end
  self.log = string.sub(log, low * ENTRY + 1)
  self.mend = (self.lock or ahead) and function()
    if self.lock then
      locks.mend(self.lock)
    end
    if ahead then
      redis.call("SET", pardon_key, struct.pack(">I6", pardon), "KEEPTTL")
    end
  end
end

-- Read log, lock and pardon; writes nothing.
-- -> the limit, and the key behind its own
local function open(at, _, limit, window, flags, lockouts)
  local log = redis.call("GET", KEYS[at]) or ""
  local self = {
    at = at, limit = limit, window = window, flags = flags,
    log = log, newest = 0, -- the entries that count, and how old the newest of all is (ms)
    algorithm = false, weight = false, -- as open_limits.lua says
  } -- with what few have: lockouts, lock, lock_set, drawn_in, mend, terms
  local old, lock_found, pardon_found = false, false, false
  at = at + 1
  if lockouts ~= "" then
    self.lockouts, lock_found, at = lockouts, redis.call("GET", KEYS[at]), at + 1
  end
  if flags >= PARDON then
    pardon_found, at = redis.call("GET", KEYS[at]), at + 1
  end
  if log ~= "" then
    if #log % ENTRY ~= 0 then
      error("authguard: malformed log")
    end
    self.newest = age(log, #log - ENTRY + 1)
    old = self.newest < 0 or age(log, 1) >= window
  end
  if old or lock_found or pardon_found then
    consider(self, log, lock_found, pardon_found)
  end
  return self, at
end

local function refuses(self, cost)
  return self.lock and now < self.lock.ends or #self.log / ENTRY + cost > self.limit
end

-- Keep a log until its newest entry leaves the window, or an active lock's end empties it.
local function save(self, log)
  if self.mend then
    self.mend()
  end
  if log == "" then
    redis.call("DEL", KEYS[self.at])
    return
  end
  local life = self.window - self.newest
  if self.lock and now < self.lock.ends then
    life = math.min(life, self.lock.ends - now)
  end
  redis.call("SET", KEYS[self.at], log, "PXAT", life + base)
end

-- An admitted attempt takes its place; the one that fills the log sets the lock.
local function charge(self, cost, id)
  local entry = stamp_now .. id
  self.log, self.newest = self.log .. (cost == 1 and entry or string.rep(entry, cost)), 0
  if self.lockouts and #self.log >= self.limit * ENTRY then
    locks = locks or lock()
    self.lock = self.lock or locks.none(KEYS[self.at + 1], self.lockouts, self.window)
    locks.set(self.lock, id)
    self.lock_set = true
  end
  save(self, self.log)
end

-- A refused attempt leaves no trace, unless the limit counts those too. What a stepped-back clock
-- made is mended here also, and a key that somebody robbed of its expiry gets one again.
-- A counted refusal is nobody's: were it forgiven, the admitted entries that it pushed out of the
-- full log would be missing, and more than `limit` could be admitted.
local function refused(self, cost, by_load)
  if self.flags % 2 == COUNT_REFUSED and not by_load and cost <= self.limit then
    -- A log that holds more was filled under a higher limit: none of what it admitted is let go.
    local kept = math.max(self.limit * ENTRY, #self.log)
    self.log = string.sub(self.log .. string.rep(stamp_now .. NOBODY, cost), -kept)
    self.newest = 0
    save(self, self.log)
    return
  end
  local there = self.log ~= "" or self.newest > 0
  if self.drawn_in or (there and redis.call("PTTL", KEYS[self.at]) == -1) then
    save(self, self.drawn_in or self.log)
  elseif self.mend then
    self.mend()
  end
end

-- -> state (0 admits, 1 full, 2 locked, 3 admitted and set the lock), remaining,
--    wait (ms until this cost is admitted, 0 if it is now, -1 never), reset (ms until all is free)
local function verdict(self, refuses, cost)
  if self.lock and now < self.lock.ends then
    local left = self.lock.ends - now
    local wait = cost > self.limit and -1 or left
    return refuses and 2 or (self.lock_set and 3 or 0), 0, refuses and wait or 0, left
  end
  local log = self.log
  local taken, reset = #log / ENTRY, log ~= "" and self.window - self.newest or 0
  local remaining = self.limit > taken and self.limit - taken or 0
  if not refuses then
    return 0, remaining, 0, reset
  end
  if cost > self.limit then
    return 1, remaining, -1, reset
  end
  local leaving = math.max(1, taken + cost - self.limit) - 1 -- so many leave before it
  return 1, remaining, self.window - age(log, leaving * ENTRY + 1), reset
end

-- A success takes back its own entries and, where the limit forgives, the earlier ones of its
-- client; it lifts the lock that it set itself. Done a second time it changes nothing.
-- -> entries freed, locks lifted
local function settle(self, set_at, id, cost)
  -- If the clock has stepped back since, the entry was drawn in to now (or, by an attempt in
  -- between, to a time that nobody knows: then it stays, and counts for at most one window).
  local made, log, own, found, oldest = stamp(math.min(set_at, now)) .. id, self.log, {}, 0, nil
  for at = #log - ENTRY + 1, 1, -ENTRY do
    if found < cost and string.sub(log, at, at + ENTRY - 1) == made then
      own[at], found, oldest = true, found + 1, at
    end
  end
  local tag, kept = string.sub(id, 1, TAG_END - ID_AT + 1), {}
  local forgives = oldest ~= nil and self.flags % (2 * FORGIVE) >= FORGIVE
  for at = 1, #log, ENTRY do
    local forgiven = forgives and at < oldest
      and string.sub(log, at + ID_AT - 1, at + TAG_END - 1) == tag
    if not own[at] and not forgiven then
      kept[#kept + 1] = string.sub(log, at, at + ENTRY - 1)
    end
  end
  local freed = #log / ENTRY - #kept
  local lifted = self.lock and locks.lift(self.lock, set_at, id)
  if freed > 0 or lifted then
    self.log = table.concat(kept)
    if #kept > 0 then
      self.newest = age(kept[#kept], 1)
    end
    save(self, self.log)
  end
  return freed, lifted and 1 or 0
end

-- -> entries freed, locks ended
local function clear(self)
  local ended = self.lock and locks.finish(self.lock)
  redis.call("DEL", KEYS[self.at])
  return #self.log / ENTRY, ended and 1 or 0
end

-- -> used, newest (ms, 0 if none), frees (ms), locked until (ms, 0 if not), level, lock set at (ms)
local function inspect(self)
  local taken, newest, frees, until_, level, set_at = #self.log / ENTRY, 0, 0, 0, 0, 0
  if taken > 0 then
    newest = now - self.newest
    frees = self.window - age(self.log, 1)
  end
  if self.lock then
    level, set_at = self.lock.level, self.lock.set_at
  end
  if self.lock and now < self.lock.ends then
    until_, frees = self.lock.ends, self.lock.ends - now
  end
  return taken, newest, frees, until_, level, set_at
end
