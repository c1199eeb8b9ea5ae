-- leaky_bucket: shapes; what is admitted waits for its turn, and turns come at a steady rate.
--
-- own, keys, value, life, cost    as bucket.lua says; one key; the limit is the queue and the one
--                                 that leaves
--
-- The level is the work that is ahead: an attempt's turn comes when it has drained. A turn that was
-- given stays given: were one taken back, the next would share another's.

local open, refuses, refused = bucket.open, bucket.refuses, bucket.refused
local clear, inspect = bucket.clear, bucket.inspect

local function charge(self, cost)
  self.delay = bucket.wait_to_drain(self)
  bucket.charge(self, cost)
end

-- -> as bucket.verdict; where it admits, wait is the time until the turn comes (ms)
local function verdict(self, refuses, cost)
  local state, remaining, wait, reset = bucket.verdict(self, refuses, cost)
  if not refuses then
    wait = self.delay or bucket.wait_to_drain(self)
  end
  return state, remaining, wait, reset
end

-- -> entries freed, locks lifted
local function settle()
  return 0, 0
end
