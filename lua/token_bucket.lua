-- token_bucket: `rate` places in each `period`, of which up to `limit` may be saved up.
--
-- own, keys, value, life, cost    as bucket.lua says; one key
--
-- The level is what is missing from a full bucket: a bucket that nobody has asked for long holds
-- `limit` tokens and no key. In any time t it admits at most limit + rate * t / period places.

local open, refuses, charge, refused = bucket.open, bucket.refuses, bucket.charge, bucket.refused
local verdict, clear, inspect = bucket.verdict, bucket.clear, bucket.inspect

-- An attempt takes its tokens back, less what the rate has refilled since: that much would have
-- been refilled for nothing had the bucket been full, and giving it back could admit more than
-- the rate allows. If the rate is another one by now, or the bucket was cleared since, nobody can
-- tell what is left of them: nothing is given back.
-- -> entries freed, locks lifted
local function settle(self, set_at, _, cost)
  local parts = cost * self.period - math.max(0, now - set_at) * self.rate
  local over = set_at > now or self.since > 0 and set_at <= self.since
  if over or parts <= 0 or self.level == 0 then
    return 0, 0
  end
  local before = math.ceil(self.level / self.period)
  bucket.give_back(self, parts)
  return before - math.ceil(self.level / self.period), 0
end
