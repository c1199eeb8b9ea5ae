"""Days and months of a time zone end when Python's own calendar says so, to the millisecond."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from authguard.limits import FixedWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard
    from authguard.limiter import Limiter

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
#: Changes are known from the year before the process starts on.
FIRST_YEAR = datetime.now(UTC).year
YEARS = range(FIRST_YEAR, FIRST_YEAR + 6)
#: Zones whose clocks do odd things: at midnight, by half an hour, twice a year around Ramadan.
ZONES = [
    "Europe/Oslo", "America/Havana", "Asia/Beirut", "Africa/Cairo", "America/Santiago",
    "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia", "America/St_Johns",
    "Africa/Casablanca", "America/Nuuk", "Atlantic/Azores", "Pacific/Kiritimati", "UTC",
]  # fmt: skip
SECOND = timedelta(seconds=1)


def to_ms(time: datetime) -> int:
    """Give milliseconds since the epoch."""
    return round((time - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


@cache
def begins_ms(day: date, zone: str) -> int:
    """Find the instant at which a local day begins, by bisection and nothing but ``astimezone``."""
    info = ZoneInfo(zone)
    noon = datetime(day.year, day.month, day.day, tzinfo=UTC)
    before, after = noon - timedelta(days=1), noon + timedelta(days=1)
    assert before.astimezone(info).date() < day <= after.astimezone(info).date()
    while after - before > SECOND:
        middle = before + (after - before) // (2 * SECOND) * SECOND
        if middle.astimezone(info).date() < day:
            before = middle
        else:
            after = middle
    return to_ms(after)


def end_ms(now_ms: int, zone: str, unit: str) -> int:
    """Say when the local day or month of an instant ends."""
    today = datetime.fromtimestamp(now_ms // 1000, ZoneInfo(zone)).date()
    if unit == "1d":
        return begins_ms(today + timedelta(days=1), zone)
    return begins_ms((today.replace(day=1) + timedelta(days=32)).replace(day=1), zone)


def told_ms(limiter: Limiter, now_ms: int) -> int:
    """Ask a key of its own when its window ends."""
    return now_ms + limiter.hit(str(now_ms), now_ms=now_ms).reset_after_ms


@pytest.fixture
def limiter(guard_factory: Callable[..., Guard]) -> Callable[..., Limiter]:
    """Make limiters by the days or months of a zone."""
    guard = guard_factory()
    return lambda unit, zone=None: guard.limiter(FixedWindow(f"1000/{unit}", zone=zone))


@pytest.mark.parametrize("unit", ["1d", "1mo"])
@pytest.mark.parametrize("zone", ZONES)
def test_random_instants_of_six_years(
    limiter: Callable[..., Limiter], zone: str, unit: str
) -> None:
    """Any day of 23, 24 or 25 hours, and any month, ends at the next one's first instant."""
    draw = random.Random(f"{zone} {unit}")
    budget = limiter(unit, zone)
    first, last = (to_ms(datetime(year, 1, 2, tzinfo=UTC)) for year in (YEARS[0], YEARS[-1] + 1))
    for _ in range(150):
        now_ms = draw.randrange(first, last)
        assert told_ms(budget, now_ms) == end_ms(now_ms, zone, unit)


@pytest.mark.parametrize("zone", ZONES)
def test_the_days_on_which_clocks_are_changed(limiter: Callable[..., Limiter], zone: str) -> None:
    """Around each change, where midnight is skipped or comes twice, the day still ends once."""
    days, months = limiter("1d", zone), limiter("1mo", zone)
    day, lengths = date(YEARS[0], 1, 2), set()
    while day.year < YEARS[-1]:
        begins, ends = (begins_ms(day + timedelta(days=n), zone) for n in (0, 1))
        if ends - begins != DAY_MS:
            lengths.add((ends - begins) / HOUR_MS)
            for hours in range(0, 25, 2):
                for now_ms in (begins + hours * HOUR_MS, begins + hours * HOUR_MS - 1):
                    assert told_ms(days, now_ms) == end_ms(now_ms, zone, "1d")
                    assert told_ms(months, now_ms) == end_ms(now_ms, zone, "1mo")
            assert told_ms(days, ends - 1) == ends
        day += timedelta(days=1)
    assert lengths in ({23, 25}, {23.5, 24.5}, set())


@pytest.mark.parametrize("zone", ["Europe/Oslo", "America/Havana", "Asia/Beirut"])
def test_a_budget_starts_anew_at_the_local_midnight(
    guard_factory: Callable[..., Guard], zone: str
) -> None:
    """R4: a full day is told its end; 1 ms sooner it is refused, then the whole budget is there."""
    budget = guard_factory().limiter(FixedWindow("10/1d", zone=zone))
    day = date(YEARS[0], 1, 2)
    while day.year == YEARS[0]:
        begins, ends = (begins_ms(day + timedelta(days=n), zone) for n in (0, 1))
        assert budget.hit("key", 10, now_ms=begins).allowed
        assert budget.hit("key", now_ms=begins + HOUR_MS).retry_after_ms == ends - begins - HOUR_MS
        assert budget.hit("key", now_ms=ends - 1).retry_after_ms == 1
        day += timedelta(days=1)


def test_every_month_of_131_years(limiter: Callable[..., Limiter]) -> None:
    """Without a zone months are those of UTC, 1970 to 2100, leap years among them."""
    budget = limiter("1mo")
    lengths = set()
    for year in range(1970, 2101):
        for month in range(1, 13):
            first = to_ms(datetime(year, month, 1, tzinfo=UTC))
            ends = to_ms(datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC))
            lengths.add(((ends - first) // DAY_MS, month))
            for now_ms in (first, (first + ends) // 2, ends - 1):
                assert told_ms(budget, now_ms) == ends
    assert {days for days, month in lengths if month == 2} == {28, 29}


def test_a_month_waits_for_its_own_length(guard_factory: Callable[..., Guard]) -> None:
    """In a February that has no 29th a full month is free again on the first of March."""
    budget = guard_factory().limiter(FixedWindow("3/1mo"))
    now_ms = to_ms(datetime(2027, 2, 1, tzinfo=UTC))
    assert budget.hit("key", 3, now_ms=now_ms).allowed
    refused = budget.hit("key", now_ms=now_ms)
    assert refused.retry_after_ms == 28 * DAY_MS
    assert not budget.hit("key", now_ms=now_ms + 28 * DAY_MS - 1).allowed
    assert budget.hit("key", 3, now_ms=now_ms + 28 * DAY_MS).allowed


def test_a_day_without_a_zone_is_one_of_utc(guard_factory: Callable[..., Guard]) -> None:
    """``1d`` without a zone, with ``UTC`` and ``24h`` end at the same instant."""
    guard = guard_factory()
    now_ms = to_ms(datetime(FIRST_YEAR, 3, 29, 13, 14, 15, tzinfo=UTC))
    for limit in (FixedWindow("9/1d"), FixedWindow("9/24h"), FixedWindow("9/1d", zone="UTC")):
        assert now_ms + guard.limiter(limit).hit("key", now_ms=now_ms).reset_after_ms == to_ms(
            datetime(FIRST_YEAR, 3, 30, tzinfo=UTC)
        )


@pytest.mark.parametrize(("unit", "longest_ms"), [("1d", 2 * DAY_MS), ("1mo", 62 * DAY_MS)])
def test_under_a_clock_that_steps_back(
    guard_factory: Callable[..., Guard], unit: str, longest_ms: int
) -> None:
    """Rule 7: a full one refuses for at most one day or month more, told once and kept to."""
    budget = guard_factory().limiter(FixedWindow(f"3/{unit}", zone="Europe/Oslo"))
    now_ms = to_ms(datetime(FIRST_YEAR, 7, 15, 12, tzinfo=UTC))
    for number, back_ms in enumerate((1, DAY_MS, 40 * DAY_MS, 200 * DAY_MS)):
        key = f"key {number}"
        assert budget.hit(key, 3, now_ms=now_ms).allowed
        early_ms = now_ms - back_ms
        wait_ms = budget.hit(key, now_ms=early_ms).retry_after_ms
        assert 0 < wait_ms <= longest_ms
        assert budget.hit(key, now_ms=early_ms + wait_ms - 1).retry_after_ms == 1
        assert budget.hit(key, 3, now_ms=early_ms + wait_ms).allowed
