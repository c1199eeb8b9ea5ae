"""Numbers change while attempts are under way: nothing is forgotten, freed twice, or told wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, Denied, Overloaded, limits
from authguard.errors import TooDear
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Attempt, Guard
    from tests.conftest import Clock

S, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
WINDOWS = ["sliding_log", "fixed_window", "sliding_window_counter"]
#: Those whose success gives places back, each with ten.
TEN: dict[str, dict[str, Any]] = {name: {name: "10/1h"} for name in WINDOWS}
TEN["token_bucket"] = {"token_bucket": "10/1h", "burst": 10}


class Door:
    """One action with limits by account, named ``it`` where there is one."""

    def __init__(self, guard: Guard, clock: Clock) -> None:
        self.guard, self.clock = guard, clock

    def attempt(self, **how: Any) -> Attempt:
        """Try once, as vera."""
        return self.guard.attempt("act", **({"account": "vera", "client": "192.0.2.1"} | how))

    def admits(self, **how: Any) -> int:
        """Try until it refuses; give how many were admitted, 200 at most."""
        for count in range(200):
            try:
                self.attempt(**how)
            except Denied:
                return count
        return 200

    def wait_ms(self, **how: Any) -> int:
        """Try, be refused, and be told how long to wait."""
        with pytest.raises(Denied) as caught:
            self.attempt(**how)
        return caught.value.decision.retry_after_ms

    def wait_out(self, **how: Any) -> int:
        """Be refused, wait as told, and be admitted then and no millisecond sooner."""
        wait_ms = self.wait_ms(**how)
        self.clock.advance(wait_ms - 1)
        who = {"account": "vera", "client": "192.0.2.1"} | how
        assert self.guard.peek("act", **who).retry_after_ms == 1
        self.clock.advance(1)
        assert self.guard.peek("act", **who).allowed
        return wait_ms

    def override(self, to: Any, for_ms: int = HOUR) -> int:
        """Override vera's limit."""
        return self.guard.override("act", "it", account="vera", to=to, for_ms=for_ms)

    def limit(self, **how: Any) -> int:
        """Give what vera's limit is now."""
        (verdict,) = self.guard.peek("act", account="vera", client="192.0.2.1", **how).verdicts
        return verdict.limit


@pytest.fixture
def door(guard_factory: Callable[..., Guard], clock: Clock) -> Callable[..., Door]:
    """Make doors, an hour after a day has begun."""
    clock.now_ms += DAY - clock.now_ms % DAY + HOUR

    def make(table: dict[str, Any], settings: Any = None, **options: Any) -> Door:
        it = {"name": "it", "by": ["account"], **table, **options}
        guard = guard_factory(
            policies={"act": {"limits": [it]}},
            clock=clock,
            **({} if settings is None else settings),
        )
        return Door(guard, clock)

    return make


@pytest.mark.parametrize("algorithm", WINDOWS)
def test_a_stricter_hour_forgets_nothing_of_a_long_limit(
    door: Callable[..., Door], clock: Clock, algorithm: str
) -> None:
    """A limit of a day that is full is still full after some minutes of a stricter override."""
    shop = door({algorithm: "20/1d"})
    assert shop.admits() == 20
    shop.override("2/1d", for_ms=10 * MINUTE)
    for _ in range(10):
        assert shop.admits() == 0
        clock.advance(MINUTE)
    assert shop.admits() == 0
    shop.override("21/1d", for_ms=MINUTE)
    shop.attempt().succeed()  # nor does one success empty it
    clock.advance(MINUTE)
    assert (shop.admits(), shop.limit()) == (0, 20)


@pytest.mark.parametrize("algorithm", WINDOWS)
def test_to_and_fro_between_tiers_admits_no_more_than_either(
    door: Callable[..., Door], clock: Clock, algorithm: str
) -> None:
    """Whoever asks as one tier and then as another gets the larger limit's places, once."""
    shop = door({algorithm: "20/1d"}, tiers={"trial": "2/1d"})
    admitted = 0
    for _ in range(5):
        admitted += shop.admits() + shop.admits(tier="trial")
        clock.advance(3 * MINUTE)
    assert admitted == 20


def test_one_account_s_tier_forgets_none_of_a_client_s_names(door: Callable[..., Door]) -> None:
    """An account of another tier resets no count of different names for its client."""
    table = {"by": ["client"], "distinct": "account", "limit": "5/1d"}
    shop = door(table, tiers={"trial": "1/1d"})
    for number in range(5):
        shop.attempt(account=f"a{number}")
    assert shop.admits(account="z", tier="trial") == 0
    assert shop.admits(account="b") == 0


@pytest.mark.parametrize(
    ("table", "other"),
    [
        *(({name: "20/1d"}, "20/1m") for name in WINDOWS),
        *(({name: "20/1m"}, "20/1d") for name in WINDOWS),
        ({"fixed_window": "20/1d"}, "20/1mo"),
        ({"distinct": "client", "limit": "20/1d"}, "2/1m"),
    ],
    ids=repr,
)
def test_another_period_is_refused(
    door: Callable[..., Door], client: valkey.Valkey, table: dict[str, Any], other: str
) -> None:
    """What would count by another period is AG006, as a tier and as an override."""
    with pytest.raises(ConfigurationError, match=r"AG006 .* differs from the limit in more than"):
        door(table, tiers={"trial": other})
    with pytest.raises(ConfigurationError, match=r"AG006 to: .* differs from the limit in more"):
        door(table).override(other)
    assert client.dbsize() == 0


def test_buckets_and_cooldowns_take_any_numbers(door: Callable[..., Door], clock: Clock) -> None:
    """A level and a last time are taken over whatever the rate: they may all change."""
    bucket = door({"token_bucket": "10/1d", "burst": 10}, tiers={"trial": "1/1m"})
    assert (bucket.admits(), bucket.admits(tier="trial")) == (10, 0)
    queue = door({"leaky_bucket": "10/1d", "queue": 9})
    queue.override(limits.LeakyBucket("1/1s", queue=1))
    assert queue.admits(account="vera") == 2
    wait = door({"cooldown": ["1h"]}, tiers={"pro": ["1s"]})
    assert wait.admits(account="omar") == 1
    clock.advance(S)
    assert (wait.admits(account="omar", tier="pro"), wait.admits(account="omar")) == (1, 0)


@pytest.mark.parametrize(("share", "later_ms"), [(0.01, 950), (0.001, 1_001)])
def test_a_bucket_slowed_by_the_load_gives_back_none_of_others(
    door: Callable[..., Door], clock: Clock, share: float, later_ms: int
) -> None:
    """What was taken at the full rate is settled for nothing once the load has slowed it."""
    table = {"by": ["global"], "token_bucket": "100/1s", "burst": 100}
    shop = door(table, elastic=True)
    early = [shop.attempt() for _ in range(100)]
    clock.advance(later_ms)
    for _ in range(30):
        shop.attempt()  # others, who fail
    shop.guard.load(share)
    for attempt in early:
        attempt.succeed()
    assert shop.admits() == 0


@pytest.mark.parametrize("way", ["override", "tier"])
@pytest.mark.parametrize("slow", [limits.TokenBucket("1/1h", burst=1), "1/1h"], ids=repr)
def test_a_bucket_of_another_rate_gives_back_nothing(
    door: Callable[..., Door], clock: Clock, slow: Any, way: str
) -> None:
    """After an override or a tier of another rate nobody can tell what is left of a token."""
    burst = 100 if isinstance(slow, str) else slow.burst
    tiers = {"slow": {"token_bucket": "1/1h", "burst": burst}}
    shop = door({"token_bucket": "100/1s", "burst": 100}, tiers=tiers)
    early = [shop.attempt() for _ in range(100)]
    clock.advance(1_001)
    for _ in range(burst):
        shop.attempt()  # others, who fail
    how: dict[str, Any] = {}
    if way == "override":
        shop.override(slow)
    else:
        how = {"tier": "slow"}
        shop.admits(**how)
    for attempt in early:
        attempt.succeed()
    assert (shop.admits(**how), shop.limit(**how)) == (0, burst)


def test_the_first_attempt_at_a_new_rate_takes_its_own_token_back(
    door: Callable[..., Door], clock: Clock
) -> None:
    """Who succeeds at each turn of the rate is never refused: its own token comes back."""
    shop = door({"token_bucket": "1/1h", "burst": 3}, tiers={"pro": "1/30m"})
    for turn in range(20):
        shop.attempt(tier="pro" if turn % 2 else None).succeed()
        clock.advance(1)
    assert shop.admits() == 3


def test_a_bucket_of_the_same_rate_gives_back_what_it_took(
    door: Callable[..., Door], clock: Clock
) -> None:
    """A change of what the bucket holds alone is none of its rate: a success takes its own."""
    shop = door({"token_bucket": "1/1h", "burst": 4})
    early = [shop.attempt() for _ in range(4)]
    shop.override(limits.TokenBucket("1/1h", burst=5))
    assert shop.admits() == 1
    for attempt in early:
        attempt.succeed()
    assert shop.admits() == 4


@pytest.mark.parametrize("algorithm", TEN)
@pytest.mark.parametrize("secret", [SECRET, [SECRET, SECRET[::-1]]], ids=["one", "two secrets"])
@pytest.mark.parametrize("later_ms", [0, 10, 20 * MINUTE])
def test_a_success_after_an_unlock_frees_none_of_others(
    door: Callable[..., Door], clock: Clock, algorithm: str, secret: Any, later_ms: int
) -> None:
    """Ten under way, an unlock, ten who fail: when the first ten succeed, no place is free."""
    shop = door(TEN[algorithm], settings={"secret": secret})
    early = [shop.attempt() for _ in range(10)]
    shop.guard.clear("act", account="vera")
    clock.advance(later_ms)
    admitted = 0
    for attempt in early:
        admitted += shop.admits()
        attempt.succeed()
    assert admitted + shop.admits() == 10


@pytest.mark.parametrize("algorithm", TEN)
def test_a_success_of_after_an_unlock_takes_its_own_back(
    door: Callable[..., Door], clock: Clock, algorithm: str
) -> None:
    """Only what was reserved before the clear has nothing to take back."""
    shop = door(TEN[algorithm])
    shop.attempt()
    shop.guard.clear("act", account="vera")
    clock.advance(1)
    later = [shop.attempt() for _ in range(10)]
    for attempt in later:
        attempt.succeed()
    assert shop.admits() == 10


@pytest.mark.parametrize("algorithm", TEN)
@pytest.mark.parametrize("back_ms", [1, HOUR, 30 * DAY])
def test_a_clock_that_steps_back_over_an_unlock(
    door: Callable[..., Door], clock: Clock, algorithm: str, back_ms: int
) -> None:
    """What was cleared later than now is taken as cleared now, and binds nobody for long."""
    shop = door(TEN[algorithm])
    shop.attempt()
    shop.guard.clear("act", account="vera")
    clock.advance(-back_ms)
    assert shop.admits() == 10
    clock.advance(2 * HOUR)
    attempt = shop.attempt()
    attempt.succeed()
    assert shop.admits() == 10


@pytest.mark.parametrize("to", [None, "9/1h"])
def test_an_override_outlives_its_length_by_no_clock(
    door: Callable[..., Door], clock: Clock, to: str | None
) -> None:
    """When the clock steps back a month, an hour's exemption isn't one of a month."""
    shop = door({"sliding_log": "5/1h"})
    shop.override(to)
    clock.advance(-30 * DAY)
    assert (shop.limit(), shop.admits()) == (5, 5)
    clock.advance(29 * DAY)
    assert shop.admits() == 5
    assert shop.guard.usage("act", account="vera")[0].override_until_ms is None
    assert not shop.guard.lift_override("act", "it", account="vera")


def test_a_load_outlives_its_length_by_no_clock(door: Callable[..., Door], clock: Clock) -> None:
    """When the clock steps back an hour, ten seconds without capacity aren't an hour of it."""
    shop = door({"token_bucket": "10/1s", "burst": 10}, elastic=True)
    shop.guard.load(0, for_ms=10_000)
    assert shop.admits() == 0
    clock.advance(-HOUR)
    assert (shop.admits(), shop.guard.current_load(), shop.guard.load_until_ms()) == (10, 1.0, None)
    shop.guard.load(0.1, for_ms=10_000)
    assert shop.guard.current_load() == 0.1


def test_what_counts_refusals_does_not_follow_the_load(door: Callable[..., Door]) -> None:
    """A refusal by the load would count in the limit itself: AG005."""
    with pytest.raises(ConfigurationError, match=r"AG005 .*elastic: what the load refuses"):
        door({"sliding_log": "4/1m"}, count_refused=True, elastic=True)


def test_a_wait_is_told_after_the_refusal_was_counted(
    door: Callable[..., Door], clock: Clock
) -> None:
    """Under an override the refused attempt counts, too, and the wait that is told knows it."""
    shop = door({"sliding_log": "4/1m"}, count_refused=True)
    for _ in range(4):
        shop.attempt()
        clock.advance(5 * S)
    shop.override("1/1m", for_ms=10 * S)
    assert shop.wait_out() == 45 * S


def test_a_cost_that_is_never_admitted_is_no_wait(door: Callable[..., Door], clock: Clock) -> None:
    """More than the limit is TooDear at once, also while its lock stands."""
    shop = door({"sliding_log": "3/1m"}, lockout="5m")
    assert shop.admits() == 3
    with pytest.raises(TooDear):
        shop.attempt(cost=4)
    shop.override("9/1m", for_ms=MINUTE)
    with pytest.raises(TooDear):
        shop.attempt(cost=10)
    assert shop.wait_ms() == 5 * MINUTE


def test_a_cost_that_a_lowering_override_never_admits(door: Callable[..., Door]) -> None:
    """Under a lowering override the wait is till its end, not the lock's again and again."""
    shop = door({"sliding_log": "3/1m"}, lockout="5m")
    assert shop.admits() == 3
    shop.override("1/1m", for_ms=10 * MINUTE)
    assert shop.wait_out(cost=2) == 10 * MINUTE


def test_a_recovery_under_load_empties_no_long_limit(door: Callable[..., Door]) -> None:
    """A long limit that is full only for the load goes on counting: it bounds an attacker."""
    shop = door({"sliding_log": "20/1d"}, elastic=True)
    for _ in range(19):
        shop.attempt()
    shop.guard.load(0.5)
    assert shop.guard.recover("act", account="vera").entries == 0
    shop.guard.load(1)
    assert shop.admits() == 1
    shop.guard.load(0.5)
    assert shop.guard.recover("act", account="vera").entries == 20


def test_what_the_load_alone_refuses_counts_nowhere(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """Nobody's own limit is filled by refusals that were not its fault; by others it is."""
    own = {"name": "own", "by": ["client"], "sliding_log": "5/1m", "count_refused": True}
    lane = {
        "name": "lane",
        "by": ["global"],
        "token_bucket": "10/1s",
        "burst": 10,
        "elastic": True,
    }
    guard = guard_factory(policies={"act": {"limits": [own, lane]}}, clock=clock)
    shop = Door(guard, clock)
    guard.load(0)
    for _ in range(8):
        with pytest.raises(Overloaded):
            shop.attempt()
    guard.load(1)
    assert shop.admits() == 5
    clock.advance(59 * S)
    assert [shop.wait_ms() for _ in range(5)] == [S, S, S, S, MINUTE]


def test_the_last_word_on_the_load_counts_whichever_secret_said_it(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """While secrets change, a worker with the old one alone is heard by those with both."""
    new = guard_factory(secret=[SECRET[::-1], SECRET], clock=clock)
    old = guard_factory(clock=clock)
    for guard, share in ((new, 0.2), (old, 1.0), (new, 0.5), (old, 0.7)):
        guard.load(share)
        clock.advance(1)
        assert (new.current_load(), old.current_load()) == (share, share)


def test_the_last_word_on_a_limit_counts_whichever_secret_said_it(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """Overrides of both secrets are merged, the newest of each limit, and none is lost."""
    table = [{"name": name, "by": ["account"], "sliding_log": "5/1h"} for name in ("hour", "more")]
    policies = {"act": {"limits": table}}
    new = guard_factory(secret=[SECRET[::-1], SECRET], clock=clock, policies=policies)
    old = guard_factory(clock=clock, policies=policies)

    def stands() -> list[list[int]]:
        clock.advance(1)
        who = {"account": "vera", "client": "192.0.2.1"}
        return [[it.limit for it in each.peek("act", **who).verdicts] for each in (new, old)]

    new.override("act", "hour", account="vera", to="50/1h", for_ms=HOUR)
    assert stands() == [[50, 5], [50, 5]]
    old.override("act", "more", account="vera", to="1/1h", for_ms=HOUR)
    assert stands() == [[50, 1], [50, 1]]
    new.override("act", "hour", account="vera", to="40/1h", for_ms=HOUR)
    assert stands() == [[40, 1], [40, 1]]
    old.override("act", "hour", account="vera", to="30/1h", for_ms=HOUR)
    assert stands() == [[30, 1], [30, 1]]
    assert new.lift_override("act", "more", account="vera")
    assert stands() == [[30, 5], [30, 5]]
