-- calendar: where days and months of a time zone end.
--
-- offsets  from (ms, UTC), offset (ms), from, offset, … (seven bytes each): from when on local time is
--          so far ahead of UTC, the oldest first; none is UTC. Times before the first have its offset.
-- cost     O(offsets)

local DAY, UNIT_DAY = 86400000, 1

-- -> the offset at a time; when it began
local function offset_at(offsets, time)
  local offset, since = 0, 0
  for at = 1, #offsets, 14 do
    local from, ahead = struct.unpack(">i7i7", offsets, at)
    if from <= time then
      since, offset = from, ahead
    elseif at == 1 then
      offset = ahead
    end
  end
  return offset, since
end

-- Days since the epoch of the first of the month after the one that this day is in: the civil
-- calendar, counted in years that begin in March, so that a leap day is a year's last.
local function next_month(day)
  local shifted = day + 719468
  local era = math.floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local year = math.floor(
    (of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524)
      - math.floor(of_era / 146096)) / 365
  )
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * of_year + 2) / 153) + 1 -- 0 is March; the next one
  if month == 12 then
    year, month = year + 1, 0
  end
  local leap_days = math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
  local first = math.floor((153 * month + 2) / 5)
  return era * 146097 + 365 * year + leap_days + first - 719468
end

-- When the local day (unit 1) or month (2) that this time lies in ends, ms since the epoch.
local function end_of(unit, offsets, time)
  local before = offset_at(offsets, time)
  local day = math.floor((time + before) / DAY)
  local midnight = (unit == UNIT_DAY and day + 1 or next_month(day)) * DAY
  local ends = midnight - before
  local after, since = offset_at(offsets, ends)
  if after == before then
    return ends
  end
  -- The clocks are changed in between. Where they skip midnight, the day begins as they do.
  return math.max(midnight - after, since)
end

return { end_of = end_of }
