-- block: what an operator has blocked, for every action; nothing is counted.
--
-- own     nothing
-- keys    one
-- value   12 bytes, big-endian: ends (6, ms; 0 = never) · set at (6, ms)
-- life    until its end; one without an end for ten years (set_block.lua)
-- cost    O(1) each
--
-- No success, recovery or further try lifts it. If the clock has stepped back behind the time when
-- it was set, it ends its whole length from now.

local FORMAT, SIZE = ">I6I6", 12
local NO_END = 0
local UNTOLD = 900000 -- the wait that is shown where there is no end

-- Read the key; writes nothing.
-- -> the block, and the key behind its own
local function open(at)
  local self = { key = KEYS[at], limit = 0, window = 0, active = false, set_at = 0, terms = false }
  local value = redis.call("GET", self.key)
  if value then
    if #value ~= SIZE then
      error("authguard: malformed block")
    end
    local ends, set_at = struct.unpack(FORMAT, value)
    if ends == NO_END then
      self.active, self.endless = true, true
    elseif now < ends then
      self.active, self.repaired = true, now < set_at
      self.ends = math.min(ends, now + ends - set_at)
    end
    self.set_at = math.min(now, set_at)
  end
  return self, at + 1
end

local function wait(self)
  if not self.active then
    return 0
  end
  return self.endless and UNTOLD or self.ends - now
end

local function refuses(self)
  return self.active
end

-- Nothing is counted; a block whose end was drawn in keeps to it.
local function refused(self)
  if self.repaired then
    local value = struct.pack(FORMAT, self.ends, self.set_at)
    redis.call("SET", self.key, value, "PXAT", self.ends - now + base)
  end
end

-- -> state (0 admits, 2 blocked), remaining (0), wait (ms), reset (ms)
local function verdict(self, refuses)
  local left = wait(self)
  return refuses and 2 or 0, 0, refuses and left or 0, left
end

-- -> entries freed (0), blocks lifted
local function clear(self)
  redis.call("DEL", self.key)
  return 0, self.active and 1 or 0
end

-- As sliding_log.inspect; -1 for a block without an end.
local function inspect(self)
  if not self.active then
    return 0, 0, 0, 0, 0, 0
  end
  return 1, 0, wait(self), self.endless and -1 or self.ends, 0, self.set_at
end
