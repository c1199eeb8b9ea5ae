"""What changes a limit for one call, whatever counts: cost, tiers, overrides, exemption, load."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied, Overloaded, limits

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Decision, Guard
    from authguard.decision import Verdict
    from authguard.limits import Algorithm
    from tests.conftest import Clock

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000

#: Six places as each algorithm writes them, and twenty.
SIX_AND_TWENTY = {
    "sliding_log": ({"sliding_log": "6/1h"}, {"sliding_log": "20/1h"}),
    "fixed_window": ({"fixed_window": "6/1h"}, {"fixed_window": "20/1h"}),
    "sliding_window_counter": (
        {"sliding_window_counter": "6/1h"},
        {"sliding_window_counter": "20/1h"},
    ),
    "token_bucket": (
        {"token_bucket": "6/1h", "burst": 6},
        {"token_bucket": "20/1h", "burst": 20},
    ),
    "leaky_bucket": (
        {"leaky_bucket": "6/1h", "queue": 5},
        {"leaky_bucket": "20/1h", "queue": 19},
    ),
    "distinct": ({"distinct": "client", "limit": "6/1h"}, {"distinct": "client", "limit": "20/1h"}),
}
TWENTY: dict[str, Algorithm] = {
    "sliding_log": limits.SlidingLog("20/1h"),
    "fixed_window": limits.FixedWindow("20/1h"),
    "sliding_window_counter": limits.SlidingWindowCounter("20/1h"),
    "token_bucket": limits.TokenBucket("20/1h", burst=20),
    "leaky_bucket": limits.LeakyBucket("20/1h", queue=19),
    "distinct": limits.Distinct("client", "20/1h"),
}
#: Those that an attempt's cost makes a difference to, and that the load can scale.
COUNTING = [name for name in SIX_AND_TWENTY if name != "distinct"]


class Door:
    """One action with one limit by account, as the tests knock at it."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._clients = 0

    def attempt(self, account: str = "vera", **how: Any) -> Any:
        """Try once, from a client of its own."""
        self._clients += 1
        return self.guard.attempt("act", account=account, client=f"10.0.0.{self._clients}", **how)

    def admits(self, **how: Any) -> int:
        """Try until it refuses; give how many were admitted, 50 at most."""
        for count in range(50):
            try:
                self.attempt(**how)
            except Denied:
                return count
        return 50

    def refusal(self, **how: Any) -> Decision:
        """Try, and be refused."""
        with pytest.raises(Denied) as caught:
            self.attempt(**how)
        assert isinstance(caught.value, Overloaded) is caught.value.decision.shed
        return caught.value.decision

    def verdict(self, account: str = "vera", **how: Any) -> Verdict:
        """Ask without trying, as a client that hasn't been here."""
        (verdict,) = self.guard.peek("act", account=account, client="192.0.2.1", **how).verdicts
        return verdict

    def override(self, to: Any, for_ms: int = HOUR, account: str = "vera") -> int:
        """Override its limit."""
        return self.guard.override("act", "it", account=account, to=to, for_ms=for_ms)


@pytest.fixture
def door(guard_factory: Callable[..., Guard], clock: Clock) -> Callable[..., Door]:
    """Make doors; an algorithm's name stands for six places in an hour that began just now."""
    clock.now_ms += DAY - clock.now_ms % DAY

    def make(algorithm: str | dict[str, Any], tier: Any = None, **options: Any) -> Door:
        table = SIX_AND_TWENTY[algorithm][0] if isinstance(algorithm, str) else algorithm
        act = {"limits": [{"name": "it", "by": ["account"], **table, **options}]}
        return Door(guard_factory(policies={"act": act}, clock=clock, tier=tier))

    return make


@pytest.mark.parametrize("algorithm", SIX_AND_TWENTY)
def test_a_tier_has_its_own_numbers(door: Callable[..., Door], algorithm: str) -> None:
    """The app's function says which numbers hold; an account without a plan has the limit's."""
    plans = {"vera": "pro", "omar": None}
    shop = door(algorithm, plans.get, tiers={"pro": SIX_AND_TWENTY[algorithm][1]})
    assert (shop.admits(account="vera"), shop.admits(account="omar")) == (20, 6)
    assert (shop.verdict("vera").limit, shop.verdict("omar").limit) == (20, 6)
    assert shop.admits(account="ghost", tier="pro") == 20


@pytest.mark.parametrize("algorithm", SIX_AND_TWENTY)
def test_the_same_places_count_when_the_tier_changes(
    door: Callable[..., Door], algorithm: str
) -> None:
    """Who buys more gets the rest of it; who gives it up has used what was used, and no less."""
    plans: dict[str, str] = {}
    shop = door(algorithm, plans.get, tiers={"pro": SIX_AND_TWENTY[algorithm][1]})
    assert shop.admits() == 6
    plans["vera"] = "pro"
    assert shop.verdict().remaining == 14
    assert shop.admits() == 14
    del plans["vera"]
    verdict = shop.verdict()
    assert (verdict.refuses, verdict.remaining, verdict.limit) == (True, 0, 6)


@pytest.mark.parametrize("algorithm", SIX_AND_TWENTY)
def test_an_override_counts_from_the_next_attempt_to_its_very_end(
    door: Callable[..., Door], clock: Clock, algorithm: str
) -> None:
    """Twenty in the place of six, with what was counted; to its last millisecond."""
    shop = door(algorithm)
    assert shop.admits() == 6
    assert shop.override(TWENTY[algorithm], for_ms=MINUTE) == clock.now_ms + MINUTE
    assert shop.verdict().remaining == 14
    for _ in range(10):
        shop.attempt()
    clock.advance(MINUTE - 1)
    assert (shop.verdict().limit, shop.verdict().refuses) == (20, False)
    clock.advance(1)
    verdict = shop.verdict()
    assert (verdict.limit, verdict.refuses, verdict.remaining) == (6, True, 0)


@pytest.mark.parametrize("algorithm", SIX_AND_TWENTY)
def test_an_override_goes_before_the_tier(door: Callable[..., Door], algorithm: str) -> None:
    """An operator's word for one account counts for more than its plan, up and down."""
    six, twenty = SIX_AND_TWENTY[algorithm]
    shop = door(twenty, lambda _: "small", tiers={"small": six})
    shop.override(TWENTY[algorithm])
    assert (shop.admits(), shop.admits(account="omar")) == (20, 6)


@pytest.mark.parametrize("algorithm", SIX_AND_TWENTY)
def test_an_override_can_lower(door: Callable[..., Door], clock: Clock, algorithm: str) -> None:
    """Six in the place of twenty: refused at once, and let in again as the override ends."""
    shop = door(SIX_AND_TWENTY[algorithm][1])
    for _ in range(10):
        shop.attempt()
    six = {"distinct": "6/1h", "token_bucket": limits.TokenBucket("6/1h", burst=6)}
    six["leaky_bucket"] = limits.LeakyBucket("6/1h", queue=5)
    shop.override(six.get(algorithm, "6/1h"), for_ms=MINUTE)
    assert (shop.verdict().refuses, shop.verdict().limit) == (True, 6)
    clock.advance(MINUTE)
    assert not shop.verdict().refuses


@pytest.mark.parametrize("algorithm", [*SIX_AND_TWENTY, "cooldown"])
def test_an_exempt_account_is_counted_by_nothing(
    door: Callable[..., Door],
    client: valkey.Valkey,
    clock: Clock,
    algorithm: str,
) -> None:
    """It admits whatever comes, no place is taken, and a success gives none of before back."""
    shop = door({"cooldown": ["1h"]} if algorithm == "cooldown" else algorithm)
    taken = shop.admits()
    assert taken == (1 if algorithm == "cooldown" else 6)
    shop.override(None, for_ms=MINUTE)
    before = {key: client.get(key) for key in client.scan_iter()}
    for _ in range(10):
        attempt = shop.attempt()
        (verdict,) = attempt.decision.verdicts
        assert (verdict.exempt, verdict.refuses, verdict.delay_ms) == (True, False, 0)
        attempt.succeed()
    assert {key: client.get(key) for key in client.scan_iter()} == before
    clock.advance(MINUTE - 1)
    kept = shop.attempt()
    clock.advance(1)
    kept.succeed()
    assert (shop.verdict().exempt, shop.verdict().refuses) == (False, True)


@pytest.mark.parametrize("algorithm", COUNTING)
def test_a_limit_s_own_cost(door: Callable[..., Door], algorithm: str) -> None:
    """With cost = 2 an attempt takes two places, one of cost 3 six; a success gives both back."""
    shop = door(algorithm, cost=2)
    attempt = shop.attempt()
    assert attempt.decision.remaining == 4
    if algorithm != "leaky_bucket":  # a turn that was given stays given
        attempt.succeed()
        assert shop.verdict().remaining == 6
        attempt = shop.attempt()
    assert shop.admits() == 2
    with pytest.raises(ValueError, match=r"cost: \d is more than the limit 6"):
        shop.attempt(cost=4)
    assert shop.attempt("omar", cost=3).decision.remaining == 0
    dear = door(algorithm, cost=4)
    assert dear.admits(account="ghost") == 1
    assert dear.verdict("ghost").remaining == 2


@pytest.mark.parametrize(
    ("share", "places"),
    [(0, 0), (0.0001, 1), (0.05, 1), (0.2, 4), (0.21, 5), (0.999, 20), (1, 20)],
)
@pytest.mark.parametrize("algorithm", COUNTING)
def test_the_share_of_a_limit_is_rounded_up(
    door: Callable[..., Door], algorithm: str, share: float, places: int
) -> None:
    """Of twenty so many are admitted: none at 0, all at 1, and a part is a whole one."""
    shop = door(SIX_AND_TWENTY[algorithm][1], elastic=True)
    shop.guard.load(share)
    assert (shop.admits(), shop.verdict().limit) == (places, places)


@pytest.mark.parametrize("algorithm", COUNTING)
def test_a_load_ends_sharp(door: Callable[..., Door], clock: Clock, algorithm: str) -> None:
    """To the last millisecond the share counts, then the whole; it never does without elastic."""
    shop = door(SIX_AND_TWENTY[algorithm][1], elastic=True)
    shop.guard.load(0.2, for_ms=MINUTE)
    assert shop.admits() == 4
    refused = shop.refusal()
    assert (refused.shed, refused.retry_after_ms) == (True, MINUTE)
    clock.advance(MINUTE - 1)
    assert shop.refusal().retry_after_ms == 1
    clock.advance(1)
    assert shop.admits() == 16
    rigid = door(algorithm)
    rigid.guard.load(0)
    assert rigid.admits(account="omar") == 6


@pytest.mark.parametrize("algorithm", COUNTING)
@pytest.mark.parametrize("seed", range(3))
def test_who_waits_as_told_under_a_load_is_admitted(
    door: Callable[..., Door], clock: Clock, algorithm: str, seed: int
) -> None:
    """R4: with a share, an override or both, the wait of that cost is exact to the millisecond."""
    draw = random.Random(seed)
    table = {"sliding_log": {"sliding_log": "20/7s"}, "fixed_window": {"fixed_window": "20/7s"},
             "sliding_window_counter": {"sliding_window_counter": "20/7s"},
             "token_bucket": {"token_bucket": "20/7s", "burst": 15},
             "leaky_bucket": {"leaky_bucket": "20/7s", "queue": 14}}[algorithm]  # fmt: skip
    shop = door(table, elastic=True)
    others = ["9/5s", "3/2s", "18/9s"] if "bucket" in algorithm else ["9/7s", "3/7s", "18/7s"]
    waited = 0
    while waited < 25:
        clock.advance(draw.choice([0, 0, 1, 100, draw.randint(0, 3_000)]))
        if draw.random() < 0.1:
            share = draw.choice([0, 0.1, 0.3, 0.5, 1])
            shop.guard.load(share, for_ms=draw.choice([draw.randint(1, 9_000), MINUTE]))
        if draw.random() < 0.05:
            shop.override(draw.choice(others), draw.choice([draw.randint(1, 9_000), HOUR]))
        cost = draw.randint(1, 15)
        told = shop.guard.peek("act", account="vera", client="192.0.2.1", cost=cost)
        if told.allowed:
            shop.attempt(cost=cost)
            continue
        waited += 1
        clock.advance(told.retry_after_ms - 1)
        again = shop.guard.peek("act", account="vera", client="192.0.2.1", cost=cost)
        assert again.retry_after_ms == 1
        clock.advance(1)
        shop.attempt(cost=cost)


@pytest.mark.parametrize("algorithm", COUNTING)
def test_an_override_follows_the_load_too(door: Callable[..., Door], algorithm: str) -> None:
    """An elastic limit that is overridden for an account is scaled from the override's numbers."""
    shop = door(algorithm, elastic=True)
    shop.override(TWENTY[algorithm])
    shop.guard.load(0.5)
    assert (shop.admits(), shop.admits(account="omar")) == (10, 3)


@pytest.mark.parametrize("algorithm", COUNTING)
def test_an_exempt_account_is_not_shed(door: Callable[..., Door], algorithm: str) -> None:
    """An exemption counts under any load."""
    shop = door(algorithm, elastic=True)
    shop.guard.load(0)
    assert shop.admits() == 0
    shop.override(None)
    assert shop.admits() == 50


def test_a_bucket_refills_as_much_slower(door: Callable[..., Door], clock: Clock) -> None:
    """At half the capacity a bucket's rate is half of it too, and a queue's turns twice as long."""
    shop = door({"token_bucket": "10/1s", "burst": 10}, elastic=True)
    queue = door({"leaky_bucket": "10/1s", "queue": 9}, elastic=True)
    shop.guard.load(0.5, for_ms=HOUR)
    assert shop.admits() == 5
    for _ in range(20):
        clock.advance(199)
        assert shop.verdict().refuses
        clock.advance(1)
        assert shop.admits() == 1
    delays = [queue.attempt("omar").decision.delay_ms for _ in range(5)]
    assert delays == [0, 200, 400, 600, 800]


@pytest.mark.parametrize("algorithm", COUNTING)
def test_a_clock_that_steps_back_under_a_load(
    door: Callable[..., Door], clock: Clock, algorithm: str
) -> None:
    """Rule 7: a load that was said later than now holds no longer: nobody knows when it ends."""
    shop = door(algorithm, elastic=True)
    shop.guard.load(0, for_ms=MINUTE)
    clock.advance(-1)
    assert shop.admits() == 6
    clock.advance(1)
    shop.guard.load(0, for_ms=MINUTE)
    clock.advance(-10_000 * HOUR)
    assert (shop.admits(account="omar"), shop.guard.current_load()) == (6, 1.0)
