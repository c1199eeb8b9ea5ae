-- lock: the lockout of one limit, in a key of its own beside the limit's log.
--
-- value   24 bytes, big-endian: ends (6, ms) · level (1) · previous ends (6, ms) ·
--         set at (6, ms) · set by (5, the attempt's id)
-- life    until the level is forgotten: `quiet` ms after the lock's end, where quiet is the
--         longest of the lockouts, or the limit's window if that is longer
-- cost    O(1) each, O(lockouts) to open
--
-- The end is fixed when the lock is set. A lock climbs one level for each episode (level n waits
-- the n-th of the lockouts, the last one repeats) and starts over after the quiet time. An end further
-- away than its own lockout can only come from a clock that stepped back (or from a policy that was
-- shortened): it is drawn in, so that nobody waits longer than one lockout.
-- Most calls meet no lock: sliding_log.lua makes these functions once one is there or is to be set.

local FORMAT, SIZE = ">I6BI6I6c5", 24
local NOBODY = "\0\0\0\0\0"

local lock = {}

-- The lock of a key where none is yet.
function lock.none(key, lockouts, window)
  local lengths, quiet = {}, window
  for at = 1, #lockouts, 7 do
    lengths[#lengths + 1] = struct.unpack(">I7", lockouts, at)
    quiet = math.max(quiet, lengths[#lengths])
  end
  return {
    key = key, lengths = lengths, quiet = quiet,
    ends = 0, stored_ends = 0, level = 0, previous = 0, set_at = 0, set_by = NOBODY,
    found = false, repaired = false,
  }
end

-- The lock that `value` tells of; writes nothing.
function lock.open(value, key, lockouts, window)
  if #value ~= SIZE then
    error("authguard: malformed lock")
  end
  local self = lock.none(key, lockouts, window)
  self.found = true
  self.ends, self.level, self.previous, self.set_at, self.set_by = struct.unpack(FORMAT, value)
  self.stored_ends = self.ends
  local length = self.lengths[math.max(1, math.min(self.level, #self.lengths))]
  if self.ends - now > length then
    self.ends, self.repaired = now + length, true
  end
  if self.previous > now then -- it had passed: only a clock that stepped back puts it ahead
    self.previous, self.repaired = now, true
  end
  if now >= self.ends + self.quiet then
    self.level = 0
  end
  return self
end

function lock.active(self)
  return now < self.ends
end

-- The log holds an entry made after the lock's end, though by the clock the end still lies ahead:
-- the clock stepped back. The lock stays ended, and what was made after it goes on counting.
function lock.has_ended(self)
  if lock.active(self) then
    self.ends, self.repaired = now, true
  end
end

-- An operator has let the account go on since: a lock that was set before is over.
function lock.pardon(self, when)
  if lock.active(self) and self.set_at < when then
    self.ends, self.repaired = when, true
  end
end

local function save(self)
  local value = struct.pack(FORMAT, self.ends, self.level, self.previous, self.set_at, self.set_by)
  local life = math.max(1, self.ends + self.quiet - now)
  redis.call("SET", self.key, value, "PXAT", life + base)
  self.found, self.repaired = true, false
end

-- Lock from now on; the reservation `id` filled the log.
function lock.set(self, id)
  self.previous, self.level = self.ends, math.min(self.level + 1, 255)
  self.ends = now + self.lengths[math.min(self.level, #self.lengths)]
  self.set_at, self.set_by = now, id
  save(self)
end

-- The attempt that set the lock succeeded: take the episode back. True if it was this attempt's.
function lock.lift(self, set_at, id)
  if self.level == 0 or self.set_at ~= set_at or self.set_by ~= id then
    return false
  end
  self.level = self.level - 1
  if lock.active(self) then
    self.ends = self.previous
  end -- else time has ended it already, and its end stays the mark before which nothing counts
  self.previous, self.set_at, self.set_by = 0, 0, NOBODY
  if self.ends == 0 then
    redis.call("DEL", self.key)
    self.found = false
  else
    save(self)
  end
  return true
end

-- Ended by an operator or the owner's recovery; the level stays until the quiet time has passed.
function lock.finish(self)
  local ended = lock.active(self)
  if ended then
    self.ends, self.previous, self.set_at, self.set_by = now, 0, 0, NOBODY
  end
  if ended or self.repaired then
    save(self)
  end
  return ended
end

-- A refused attempt changes nothing, but a drawn-in end must stay, and no key lives for ever.
function lock.mend(self)
  if self.found and (self.repaired or redis.call("PTTL", self.key) == -1) then
    save(self)
  end
end

return lock
