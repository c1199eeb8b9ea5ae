-- sliding_log: at most `limit` admitted attempts in any window, to the millisecond.
--
-- own     {limit, window (ms), flags, lockouts ({} or ms each)}
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
local NOBODY = string.rep("\0", 5)
local stamp = times.stamp

local sliding_log = {}

local function has(flags, flag)
  return flags % (2 * flag) >= flag
end

-- Milliseconds since the entry at `index` (from 0) was made; negative if it lies ahead.
local function age(self, index)
  return times.age(self.log, index * ENTRY + 1, self.now)
end

local function entry(self, index)
  return string.sub(self.log, index * ENTRY + 1, (index + 1) * ENTRY)
end

local function adopt(self, log)
  self.log, self.first, self.size = log, 0, #log / ENTRY
end

local function count(self)
  return self.size - self.first
end

local function draw_in(self)
  local entries = {}
  for index = 0, self.size - 1 do
    local it = entry(self, index)
    entries[index + 1] = age(self, index) < 0 and stamp(self.now) .. string.sub(it, ID_AT) or it
  end
  adopt(self, table.concat(entries))
  self.repaired = true
end

-- Find the first entry that still counts: younger than the window, and not before the last
-- lock's end (a lock that time, recovery or an operator ended leaves an empty log).
local function drop_old(self)
  local span = self.window
  if self.lock and not lock.active(self.lock) then
    span = math.min(span, self.now - self.lock.ends + 1)
  end
  if self.pardon then
    span = math.min(span, self.now - self.pardon + 1)
  end
  local low, high = 0, self.size
  while low < high do
    local middle = math.floor((low + high) / 2)
    if age(self, middle) < span then
      high = middle
    else
      low = middle + 1
    end
  end
  self.first = low
end

-- When an operator let the account go on from wherever it comes (pardon.lua). One that lies ahead
-- can only come from a clock that stepped back: it is drawn in to now, so that what is made from
-- here on counts.
local function read_pardon(self, key)
  local value = redis.call("GET", key)
  if not value then
    return
  end
  if #value ~= 6 then
    error("authguard: malformed pardon")
  end
  local pardon = struct.unpack(">I6", value)
  self.pardon, self.pardon_key = math.min(pardon, self.now), key
  self.pardon_drawn_in = pardon > self.now
end

local function mend(self)
  if self.lock then
    lock.mend(self.lock)
  end
  if self.pardon_drawn_in then
    redis.call("SET", self.pardon_key, struct.pack(">I6", self.pardon), "KEEPTTL")
  end
end

-- Read log, lock and pardon; writes nothing.
function sliding_log.open(at, own, now, base)
  local self = { now = now, base = base, key = KEYS[at], keys = 1 }
  self.limit, self.window = own[1], own[2]
  self.counts_refused, self.forgives = has(own[3], COUNT_REFUSED), has(own[3], FORGIVE)
  adopt(self, redis.call("GET", self.key) or "")
  if #self.log % ENTRY ~= 0 then
    error("authguard: malformed log")
  end
  if #own[4] > 0 then
    self.keys = 2
    self.lock = lock.open(KEYS[at + 1], own[4], self.window, now, base)
  end
  if has(own[3], PARDON) then
    read_pardon(self, KEYS[at + self.keys])
    self.keys = self.keys + 1
  end
  if self.size > 0 and age(self, self.size - 1) < 0 then
    local newest = now - age(self, self.size - 1)
    draw_in(self)
    if self.lock and newest >= self.lock.stored_ends then
      lock.has_ended(self.lock)
    end
  end
  if self.pardon and self.lock then
    lock.pardon(self.lock, self.pardon)
  end
  drop_old(self)
  return self
end

local function locked(self)
  return self.lock ~= nil and lock.active(self.lock)
end

function sliding_log.refuses(self, cost)
  return locked(self) or count(self) + cost > self.limit
end

-- Keep the log until its newest entry leaves the window, or an active lock's end empties it.
local function save(self)
  mend(self)
  if self.size == 0 then
    redis.call("DEL", self.key)
    return
  end
  local life = self.window - age(self, self.size - 1)
  if locked(self) then
    life = math.min(life, self.lock.ends - self.now)
  end
  redis.call("SET", self.key, self.log, "PXAT", math.max(1, life) + self.base)
end

local function append(self, cost, id)
  local log = string.sub(self.log, self.first * ENTRY + 1)
  adopt(self, log .. string.rep(stamp(self.now) .. id, cost))
end

-- An admitted attempt takes its place; the one that fills the log sets the lock.
function sliding_log.charge(self, cost, id)
  append(self, cost, id)
  local fills = self.lock ~= nil and count(self) >= self.limit
  if fills then
    lock.set(self.lock, id)
    self.lock_set = true
  end
  save(self)
end

-- A refused attempt leaves no trace, unless the limit counts those too. What a stepped-back clock
-- made is mended here also, and a key that somebody robbed of its expiry gets one again.
-- A counted refusal is nobody's: were it forgiven, the admitted entries that it pushed out of the
-- full log would be missing, and more than `limit` could be admitted.
function sliding_log.refused(self, cost, by_load)
  if self.counts_refused and not by_load and cost <= self.limit then
    -- A log that holds more was filled under a higher limit: none of what it admitted is let go.
    local kept = math.max(self.limit, count(self))
    append(self, cost, NOBODY)
    adopt(self, string.sub(self.log, -kept * ENTRY))
    save(self)
  elseif self.repaired or (self.size > 0 and redis.call("PTTL", self.key) == -1) then
    save(self)
  end
  mend(self)
end

-- -> state (0 admits, 1 full, 2 locked, 3 admitted and set the lock), remaining,
--    wait (ms until this cost is admitted, 0 if it is now, -1 never), reset (ms until all is free)
function sliding_log.verdict(self, refuses, cost)
  local used = count(self)
  if locked(self) then
    local left = self.lock.ends - self.now
    local wait = cost > self.limit and -1 or left
    return refuses and 2 or (self.lock_set and 3 or 0), 0, refuses and wait or 0, left
  end
  local reset = used > 0 and self.window - age(self, self.size - 1) or 0
  local remaining = math.max(0, self.limit - used)
  if not refuses then
    return 0, remaining, 0, reset
  end
  if cost > self.limit then
    return 1, remaining, -1, reset
  end
  local leaving = self.first + math.max(1, used + cost - self.limit) - 1
  return 1, remaining, self.window - age(self, leaving), reset
end

-- A success takes back its own entries and, where the limit forgives, the earlier ones of its
-- client; it lifts the lock that it set itself. Done a second time it changes nothing.
-- -> entries freed, locks lifted
function sliding_log.settle(self, set_at, id, cost)
  -- If the clock has stepped back since, the entry was drawn in to now (or, by an attempt in
  -- between, to a time that nobody knows: then it stays, and counts for at most one window).
  local made, own, found, oldest = stamp(math.min(set_at, self.now)) .. id, {}, 0, nil
  for index = self.size - 1, self.first, -1 do
    if found < cost and entry(self, index) == made then
      own[index], found, oldest = true, found + 1, index
    end
  end
  local tag, kept = string.sub(id, 1, TAG_END - ID_AT + 1), {}
  for index = self.first, self.size - 1 do
    local it = entry(self, index)
    local forgiven = self.forgives and oldest ~= nil and index < oldest
      and string.sub(it, ID_AT, TAG_END) == tag
    if not own[index] and not forgiven then
      kept[#kept + 1] = it
    end
  end
  local freed = count(self) - #kept
  local lifted = self.lock ~= nil and lock.lift(self.lock, set_at, id)
  if freed > 0 or lifted then
    adopt(self, table.concat(kept))
    save(self)
  end
  return freed, lifted and 1 or 0
end

-- -> entries freed, locks ended
function sliding_log.clear(self)
  local freed, ended = count(self), self.lock ~= nil and lock.finish(self.lock)
  redis.call("DEL", self.key)
  return freed, ended and 1 or 0
end

-- -> used, newest (ms, 0 if none), frees (ms), locked until (ms, 0 if not), level, lock set at (ms)
function sliding_log.inspect(self)
  local used, newest, frees, until_, level, set_at = count(self), 0, 0, 0, 0, 0
  if used > 0 then
    newest = self.now - age(self, self.size - 1)
    frees = self.window - age(self, self.first)
  end
  if self.lock then
    level, set_at = self.lock.level, self.lock.set_at
  end
  if locked(self) then
    until_, frees = self.lock.ends, self.lock.ends - self.now
  end
  return used, newest, frees, until_, level, set_at
end

return sliding_log
