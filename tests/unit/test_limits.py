"""Limits are frozen values: right ones say what they count, wrong ones say what to mend."""

from __future__ import annotations

import itertools
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from authguard import ConfigurationError
from authguard.limits import (
    Conversion,
    Cooldown,
    Distinct,
    FixedWindow,
    LeakyBucket,
    SlidingLog,
    SlidingWindowCounter,
    TokenBucket,
)
from authguard.limits.zones import check_zone, offsets_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.limits import Algorithm

DAY, MONTH = 86_400_000, 31 * 86_400_000
MS = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: An algorithm: its name, limit, window, largest cost, numbers, and whether the load scales it.
GOOD: list[tuple[Algorithm, str, int, int, int | None, list[Any], bool]] = [
    (SlidingLog("5/15m"), "sliding_log", 5, 900_000, 5, [5, 900_000], True),
    (FixedWindow("10/1h"), "fixed_window", 10, 3_600_000, 10, [10, 3_600_000], True),
    (FixedWindow("10/1mo"), "fixed_window", 10, MONTH, 10, [10, MONTH], True),
    (FixedWindow("10/1d", zone="UTC"), "fixed_window", 10, DAY, 10, [10, DAY], True),
    (
        SlidingWindowCounter("100/1m"),
        "sliding_window_counter", 100, 60_000, 100, [100, 60_000], True,
    ),
    (TokenBucket("5/1s", burst=10), "token_bucket", 10, 2_000, 10, [10, 1, 200], True),
    (TokenBucket("7/1s", burst=3), "token_bucket", 3, 429, 3, [3, 7, 1_000], True),
    (LeakyBucket("10/1s", queue=0), "leaky_bucket", 1, 100, 1, [1, 1, 100], True),
    (LeakyBucket("10/1s", queue=20), "leaky_bucket", 21, 2_100, 21, [21, 1, 100], True),
    (Cooldown("30s", "60s"), "cooldown", 1, 30_000, None, [[30_000, 60_000]], False),
    (Distinct("account", "20/1h"), "distinct", 20, 3_600_000, None, [20, 3_600_000], False),
    (Conversion("10/50", lockout="24h"), "conversion", 50, DAY, None, [], False),
]  # fmt: skip

WRONG: dict[str, tuple[Callable[[], object], str, str]] = {
    "a counter of a month": (
        lambda: SlidingWindowCounter("5/1mo"), "AG006", "SlidingWindowCounter"
    ),
    "a log of a month": (lambda: SlidingLog("5/1mo"), "AG006", "SlidingLog"),
    "two months": (lambda: FixedWindow("5/2mo"), "AG006", "FixedWindow"),
    "a week": (lambda: FixedWindow("5/1w"), "AG006", "FixedWindow"),
    "none": (lambda: FixedWindow("0/1d"), "AG005", "FixedWindow"),
    "more than a billion": (lambda: FixedWindow("1000000001/1d"), "AG005", "FixedWindow"),
    "a count that can't be exact": (
        lambda: SlidingWindowCounter("1000000000/365d"), "AG005", "SlidingWindowCounter"
    ),
    "a zone that isn't": (
        lambda: FixedWindow("5/1d", zone="Europe/Nowhere"), "AG006", "FixedWindow.zone"
    ),
    "a zone that is a path": (
        lambda: FixedWindow("5/1d", zone="../../etc/passwd"), "AG006", "FixedWindow.zone"
    ),
    "a zone that is a folder": (
        lambda: FixedWindow("5/1d", zone="Europe"), "AG006", "FixedWindow.zone"
    ),
    "an empty zone": (lambda: FixedWindow("5/1d", zone=""), "AG006", "FixedWindow.zone"),
    "a zone of the machine": (
        lambda: FixedWindow("5/1d", zone="localtime"), "AG006", "FixedWindow.zone"
    ),
    "another zone of the machine": (
        lambda: FixedWindow("5/1d", zone="posixrules"), "AG006", "FixedWindow.zone"
    ),
    "a zone not set up": (lambda: FixedWindow("5/1d", zone="Factory"), "AG006", "FixedWindow.zone"),
    "a zone with leap seconds": (
        lambda: FixedWindow("5/1d", zone="right/Europe/Oslo"), "AG006", "FixedWindow.zone"
    ),
    "a zone by another road": (
        lambda: FixedWindow("5/1d", zone="posix/Europe/Oslo"), "AG006", "FixedWindow.zone"
    ),
    "a list of zones": (
        lambda: FixedWindow("5/1d", zone=["Europe/Oslo"]),  # type: ignore[arg-type]
        "AG006", "FixedWindow.zone",
    ),
    "a table of zones": (
        lambda: FixedWindow("5/1mo", zone={"a": 1}),  # type: ignore[arg-type]
        "AG006", "FixedWindow.zone",
    ),
    "a number of a zone": (
        lambda: FixedWindow("5/1d", zone=5),  # type: ignore[arg-type]
        "AG006", "FixedWindow.zone",
    ),
    "a zone with a zero": (lambda: FixedWindow("5/1d", zone="a\0b"), "AG006", "FixedWindow.zone"),
    "a zone of hours": (
        lambda: FixedWindow("5/24h", zone="Europe/Oslo"), "AG006", "FixedWindow.zone"
    ),
    "a zone of two days": (
        lambda: FixedWindow("5/2d", zone="Europe/Oslo"), "AG006", "FixedWindow.zone"
    ),
    "all kept back": (lambda: FixedWindow("5/1d", reserve=5), "AG005", "FixedWindow.reserve"),
    "a reserve that is no number": (
        lambda: FixedWindow("5/1d", reserve=True), "AG005", "FixedWindow.reserve"
    ),
    "no burst": (lambda: TokenBucket("5/1s", burst=0), "AG005", "TokenBucket.burst"),
    "half a burst": (
        lambda: TokenBucket("5/1s", burst=1.5),  # type: ignore[arg-type]
        "AG005", "TokenBucket.burst",
    ),
    "a true burst": (lambda: TokenBucket("5/1s", burst=True), "AG005", "TokenBucket.burst"),
    "a rate of a month": (lambda: TokenBucket("5/1mo", burst=1), "AG006", "TokenBucket"),
    "a burst that takes ages": (
        lambda: TokenBucket("1/3650d", burst=2), "AG005", "TokenBucket"
    ),
    "a burst that can't be exact": (
        lambda: TokenBucket("999999999/3650d", burst=999_999), "AG005", "TokenBucket"
    ),
    "a queue below none": (lambda: LeakyBucket("5/1s", queue=-1), "AG005", "LeakyBucket.queue"),
    "a queue that is text": (
        lambda: LeakyBucket("5/1s", queue="9"),  # type: ignore[arg-type]
        "AG005", "LeakyBucket.queue",
    ),
    "a queue that takes ages": (lambda: LeakyBucket("1/3650d", queue=1), "AG005", "LeakyBucket"),
    "no waits": (Cooldown, "AG006", "Cooldown"),
    "falling waits": (lambda: Cooldown("60s", "30s"), "AG006", "Cooldown"),
    "33 waits": (lambda: Cooldown(*["30s"] * 33), "AG006", "Cooldown"),
    "no part": (lambda: Distinct(5, "5/1h"), "AG005", "Distinct"),  # type: ignore[arg-type]
    "too many values": (lambda: Distinct("account", "1001/1h"), "AG005", "Distinct.limit"),
    "no rate": (lambda: SlidingWindowCounter("fast"), "AG005", "SlidingWindowCounter"),
    "no text": (lambda: TokenBucket(5, burst=5), "AG005", "TokenBucket"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("good", GOOD, ids=repr)
def test_what_a_limit_says_of_itself(
    good: tuple[Algorithm, str, int, int, int | None, list[Any], bool],
) -> None:
    """Name, limit, window, largest cost, numbers, and whether the load can scale it."""
    algorithm, *said = good
    assert said == [
        algorithm.algorithm,
        algorithm.limit,
        algorithm.window_ms,
        algorithm.largest_cost(),
        algorithm.numbers(),
        algorithm.can_scale,
    ]


@pytest.mark.parametrize("good", GOOD, ids=repr)
def test_a_limit_is_a_frozen_value(good: tuple[Any, ...]) -> None:
    """No number of a limit can be changed behind its checks, and equal ones are one."""
    algorithm = good[0]
    field = next(iter(type(algorithm).__dataclass_fields__))
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        setattr(algorithm, field, 10**6)
    assert len({algorithm, *(each[0] for each in GOOD)}) == len(GOOD)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    """B133, R12: a wrong number or zone is an error when the limit is made, with the mend."""
    make, code, where = WRONG[name]
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert (caught.value.code, caught.value.where) == (code, where)
    assert caught.value.mend


def test_the_ends_of_the_ranges_are_in_them() -> None:
    """B133: the least and the most of each can be made."""
    assert FixedWindow("1000000000/3650d", reserve=999_999_999).limit == 10**9
    assert SlidingWindowCounter("1000000000/1s").limit == 10**9
    assert TokenBucket("1000000000/1s", burst=1_000_000_000).limit == 10**9
    assert TokenBucket("1/3257d", burst=1).window_ms == 3_257 * DAY  # the longest in six bytes
    assert LeakyBucket("1/3257d", queue=0).limit == 1
    assert len(Cooldown(*["30s"] * 32).waits_ms) == 32
    assert Distinct("account", "1000/3650d").limit == 1_000


def test_a_rate_in_other_words_is_the_same() -> None:
    """60 a minute are one a second: to a bucket, not to a window."""
    assert TokenBucket("60/1m", burst=5) == TokenBucket("1/1s", burst=5)
    assert LeakyBucket("60/1m", queue=5) == LeakyBucket("1/1s", queue=5)
    assert FixedWindow("60/1m") != FixedWindow("1/1s")
    assert FixedWindow("5/1d") != FixedWindow("5/1d", zone="UTC")


@pytest.mark.parametrize(
    ("algorithm", "to", "numbers"),
    [
        (SlidingLog("5/15m", lockout="1h"), "50/900s", [50, 900_000]),
        (SlidingLog("5/15m"), SlidingLog("7/15m"), [7, 900_000]),
        (FixedWindow("10/1mo"), "99/1mo", [99, MONTH]),
        (FixedWindow("10/1d", zone="Europe/Oslo"), "99/1d", [99, DAY]),
        (SlidingWindowCounter("10/1h"), "99/1h", [99, 3_600_000]),
        (TokenBucket("5/1s", burst=10), "50/1s", [10, 1, 20]),
        (TokenBucket("5/1s", burst=10), TokenBucket("5/1s", burst=99), [99, 1, 200]),
        (LeakyBucket("5/1s", queue=9), "50/1s", [10, 1, 20]),
        (Cooldown("30s"), "5s, 10s", [[5_000, 10_000]]),
        (Distinct("account", "20/1h"), "40/1h", [40, 3_600_000]),
    ],
    ids=repr,
)
def test_other_numbers(algorithm: Algorithm, to: str | Algorithm, numbers: list[Any]) -> None:
    """An override is written as the limit's own, or is another of its kind."""
    assert algorithm.numbers_of(to, "to") == numbers


@pytest.mark.parametrize(
    ("algorithm", "to", "code"),
    [
        (SlidingLog("5/15m"), "fast", "AG005"),
        (SlidingLog("5/15m"), "5/0m", "AG006"),
        (SlidingLog("5/15m"), FixedWindow("5/15m"), "AG005"),
        (SlidingLog("5/15m"), 5, "AG005"),
        (SlidingLog("5/15m"), "5/1m", "AG006"),
        (SlidingLog("5/15m"), SlidingLog("5/1h"), "AG006"),
        (FixedWindow("10/1h"), "99/2h", "AG006"),
        (SlidingWindowCounter("10/1h"), "99/30m", "AG006"),
        (Distinct("account", "20/1h"), "20/1m", "AG006"),
        (Distinct("account", "20/1h"), Distinct("device", "20/1h"), "AG006"),
        (FixedWindow("10/1mo"), "99/1d", "AG006"),
        (FixedWindow("10/1d"), "99/1mo", "AG006"),
        (FixedWindow("10/1d", zone="Europe/Oslo"), "99/12h", "AG006"),
        (TokenBucket("5/1s", burst=10), LeakyBucket("5/1s", queue=9), "AG005"),
        (TokenBucket("5/1s", burst=10), "1/3650d", "AG005"),
        (Cooldown("30s"), "60s, 30s", "AG006"),
        (Distinct("account", "20/1h"), "1001/1h", "AG005"),
        (Conversion("10/50", lockout="24h"), "20/50", "AG005"),
    ],
    ids=repr,
)
def test_other_numbers_that_are_wrong(algorithm: Algorithm, to: Any, code: str) -> None:
    """What is no number of its kind is refused before anything is stored."""
    with pytest.raises(ConfigurationError) as caught:
        algorithm.numbers_of(to, "to")
    assert caught.value.code == code


def test_what_the_script_is_told() -> None:
    """The numbers come first, so that an override can take their place; the rest stands behind."""
    for algorithm, *_ in GOOD:
        numbers = algorithm.numbers()
        assert algorithm.spec(("account",))[: len(numbers)] == numbers
    assert FixedWindow("9/1d", reserve=2).spec((), reserved=True) == [9, DAY, 2, 0, []]
    assert FixedWindow("9/1d", reserve=2).spec(()) == [9, DAY, 0, 0, []]
    months = FixedWindow("9/1mo").spec(())
    assert months[2:4] == [0, 2]
    assert set(months[4][1::2]) == {0}


MONTHLESS: dict[str, Callable[[str], object]] = {
    "sliding_log": SlidingLog,
    "sliding_window_counter": SlidingWindowCounter,
    "token_bucket": lambda text: TokenBucket(text, burst=5),
    "leaky_bucket": lambda text: LeakyBucket(text, queue=5),
    "distinct": lambda text: Distinct("account", text),
    "other numbers of a log": lambda text: SlidingLog("5/1d").numbers_of(text, "to"),
}
MONTHLY: dict[str, Callable[[str], object]] = {
    "fixed_window": FixedWindow,
    "other numbers of a month": lambda text: FixedWindow("5/1mo").numbers_of(text, "to"),
}


@pytest.mark.parametrize("text", ["5/month", "5/mo", "5/2mo", "5/1month", "5/1mo"])
@pytest.mark.parametrize("name", [*MONTHLESS, *MONTHLY])
def test_how_a_month_is_written(name: str, text: str) -> None:
    """Whoever writes a month otherwise, or where there are none, is told how and where it is."""
    if text == "5/1mo" and name in MONTHLY:
        MONTHLY[name](text)
        return
    with pytest.raises(ConfigurationError, match=r"AG006 .*'1mo' .* in a fixed_window alone"):
        (MONTHLESS | MONTHLY)[name](text)


@pytest.mark.parametrize(
    "zone",
    ["Europe/Oslo", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca", "UTC",
     "America/St_Johns", "Asia/Beirut", "Pacific/Apia"],
)  # fmt: skip
def test_the_offsets_of_a_zone(zone: str) -> None:
    """Hour by hour through eight years each offset that is listed is the zone's own."""
    check_zone(zone, "zone")
    offsets = offsets_of(zone)
    begins, ahead = offsets[::2], offsets[1::2]
    assert list(begins) == sorted(set(begins))
    assert all(one != other for one, other in itertools.pairwise(ahead))
    info = ZoneInfo(zone)
    for since, offset in zip(begins[1:], ahead[1:], strict=True):
        for before_ms, is_new in ((0, True), (1_000, False)):
            time = (EPOCH + (since - before_ms) * MS).astimezone(info)
            assert ((time.utcoffset() or timedelta(0)) // MS == offset) is is_new
    year = datetime.now(UTC).year
    time, end = (datetime(each, 1, 1, tzinfo=UTC) for each in (year - 1, year + 7))
    at = 0
    while time < end:
        now_ms = (time - EPOCH) // MS
        while at + 1 < len(begins) and begins[at + 1] <= now_ms:
            at += 1
        assert ahead[at] == (time.astimezone(info).utcoffset() or timedelta(0)) // MS
        time += timedelta(hours=1)
