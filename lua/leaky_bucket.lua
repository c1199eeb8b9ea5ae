-- leaky_bucket: shapes; what is admitted waits for its turn, and turns come at a steady rate.
--
-- own, keys, value, life, cost    as bucket.lua says; one key; the limit is the queue and the one
--                                 that leaves
--
-- The level is the work that is ahead: an attempt's turn comes when it has drained. A turn that was
-- given stays given: were one taken back, the next would share another's.

local leaky_bucket = bucket.derive()

function leaky_bucket.charge(self, cost)
  self.delay = bucket.wait_to_drain(self)
  bucket.charge(self, cost)
end

-- -> as bucket.verdict; where it admits, wait is the time until the turn comes (ms)
function leaky_bucket.verdict(self, refuses, cost)
  local state, remaining, wait, reset = bucket.verdict(self, refuses, cost)
  if not refuses then
    wait = self.delay or bucket.wait_to_drain(self)
  end
  return state, remaining, wait, reset
end

-- -> entries freed, locks lifted
function leaky_bucket.settle()
  return 0, 0
end

return leaky_bucket
