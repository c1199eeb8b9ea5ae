"""Operators give one account other numbers for a while: whose, which, and for how long."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, Denied, InvalidInput, limits
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from tests.conftest import Clock

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ADDRESS = "203.0.113.9"
POLICIES = {
    "api": {
        "limits": [
            {"name": "hour", "by": ["account"], "sliding_log": "2/1h"},
            {"name": "day", "by": ["account"], "fixed_window": "4/24h"},
            {"name": "wait", "by": ["account"], "cooldown": ["1s"]},
            {"name": "device", "by": ["device"], "sliding_log": "2/1h"},
            {"name": "client", "by": ["client"], "sliding_log": "1000/1h"},
        ]
    },
    "mail": {"limits": [{"name": "hour", "by": ["account"], "sliding_log": "2/1h"}]},
}


@pytest.fixture
def make(guard_factory: Callable[..., Guard], clock: Clock) -> Callable[..., Guard]:
    """Make guards of the same actions, on one clock."""
    return lambda **settings: guard_factory(**({"policies": POLICIES, "clock": clock} | settings))


@pytest.fixture
def guard(make: Callable[..., Guard]) -> Guard:
    """Make one."""
    return make()


@pytest.fixture
def admits(clock: Clock) -> Callable[..., int]:
    """Count how many in a row are admitted, each a second after the last; 20 at most."""

    def count(guard: Guard, action: str = "api", account: str = "vera", **how: Any) -> int:
        for number in range(20):
            clock.advance(1_000)
            try:
                guard.attempt(action, account=account, client=ADDRESS, **how)
            except Denied:
                return number
        return 20

    return count


def test_it_is_for_one_account_and_one_limit(guard: Guard, admits: Callable[..., int]) -> None:
    """Another account, limit or action has its own numbers."""
    guard.override("api", "hour", account="vera", to="9/1h", for_ms=HOUR)
    assert admits(guard) == 4  # the day's own four
    assert admits(guard, account="omar") == 2
    assert admits(guard, "mail") == 2


def test_several_limits_at_once(guard: Guard, admits: Callable[..., int], clock: Clock) -> None:
    """Each has its numbers and its end; one that is lifted leaves the others as they are."""
    guard.override("api", "hour", account="vera", to="9/1h", for_ms=HOUR)
    guard.override("api", "day", account="vera", to="7/24h", for_ms=2 * HOUR)
    guard.override("api", "wait", account="vera", to=None, for_ms=HOUR)
    assert admits(guard) == 7
    assert guard.lift_override("api", "day", account="vera")
    verdicts = guard.peek("api", account="vera", client=ADDRESS).verdicts
    assert [verdict.limit for verdict in verdicts] == [9, 4, 1, 1000]
    assert [verdict.exempt for verdict in verdicts] == [False, False, True, False]
    clock.advance(HOUR)
    assert [
        verdict.limit for verdict in guard.peek("api", account="vera", client=ADDRESS).verdicts
    ] == [2, 4, 1, 1000]


def test_every_worker_heeds_it_from_the_next_attempt_on(
    make: Callable[..., Guard], admits: Callable[..., int]
) -> None:
    """One guard says it, another one's next attempt is judged by it; likewise when it is lifted."""
    operators, worker = make(), make()
    assert admits(worker, "mail") == 2
    operators.override("mail", "hour", account="vera", to="5/1h", for_ms=HOUR)
    assert admits(worker, "mail") == 3
    operators.override("mail", "hour", account="vera", to="6/1h", for_ms=HOUR)
    assert admits(worker, "mail") == 1
    assert operators.lift_override("mail", "hour", account="vera")
    assert worker.peek("mail", account="vera", client=ADDRESS).verdicts[0].limit == 2


def test_lifting_tells_whether_there_was_one(guard: Guard, clock: Clock) -> None:
    """A second lift finds none; nor does one when it was over by itself."""
    assert not guard.lift_override("api", "hour", account="vera")
    guard.override("api", "hour", account="vera", to="9/1h", for_ms=MINUTE)
    assert guard.lift_override("api", "hour", account="vera")
    assert not guard.lift_override("api", "hour", account="vera")
    guard.override("api", "hour", account="vera", to="9/1h", for_ms=MINUTE)
    clock.advance(MINUTE)
    assert not guard.lift_override("api", "hour", account="vera")


def test_all_names_of_an_account_are_meant(make: Callable[..., Guard]) -> None:
    """Whatever an operator calls it, and whatever its owner types, it is the one account."""
    names = {"vera": "key-1", "vera@example.test": "key-1", "+47 400 00 000": "key-1"}
    guard = make(resolve=lambda name: names.get(name.lower()))
    guard.override("mail", "hour", account="vera@example.test", to="9/1h", for_ms=HOUR)
    for name in ("VERA", "Vera@Example.test", "+47 400 00 000"):
        assert guard.peek("mail", account=name, client=ADDRESS).verdicts[0].limit == 9
    assert guard.peek("mail", account="omar", client=ADDRESS).verdicts[0].limit == 2
    assert guard.lift_override("mail", "hour", account="VERA")


def test_what_is_stored_names_nobody(guard: Guard, client: valkey.Valkey, clock: Clock) -> None:
    """Key and value hold no account, secret or address; the key ends with the last override."""
    guard.override("api", "hour", account="vera@example.test", to="9/1h", for_ms=HOUR)
    guard.override("api", "day", account="vera@example.test", to=None, for_ms=DAY)
    (key,) = client.scan_iter()
    value = client.get(key)
    assert len(key) == 39
    assert b"vera" not in key + value
    assert json.loads(value) == {
        "hour": ["sliding_log", clock.now_ms + HOUR, [9, HOUR], clock.now_ms],
        "day": ["fixed_window", clock.now_ms + DAY, 0, clock.now_ms],
    }
    slack = HOUR  # a passed clock doesn't drive the store's
    assert DAY + slack - MINUTE < client.pttl(key) <= DAY + slack


def test_by_the_store_s_clock_the_key_ends_with_it(
    make: Callable[..., Guard], client: valkey.Valkey
) -> None:
    """R11: no override is kept longer than it holds, and lifting the last leaves no key."""
    guard = make(clock=None)
    ends_ms = guard.override("api", "hour", account="vera", to="9/1h", for_ms=HOUR)
    (key,) = client.scan_iter()
    assert client.pexpiretime(key) == ends_ms
    longer_ms = guard.override("api", "day", account="vera", to=None, for_ms=2 * HOUR)
    assert client.pexpiretime(key) == longer_ms
    guard.lift_override("api", "day", account="vera")
    assert client.pexpiretime(key) == ends_ms
    guard.lift_override("api", "hour", account="vera")
    assert client.dbsize() == 0


def test_under_two_secrets(make: Callable[..., Guard], client: valkey.Valkey) -> None:
    """An override outlives a change of secrets: before, while and after both are listed."""
    old, new = SECRET, SECRET[::-1]
    before, during, after = make(secret=old), make(secret=[new, old]), make(secret=new)

    def limit(guard: Guard) -> int:
        return guard.peek("mail", account="vera", client=ADDRESS).verdicts[0].limit

    before.override("mail", "hour", account="vera", to="9/1h", for_ms=HOUR)
    assert [limit(each) for each in (before, during, after)] == [9, 9, 2]
    during.override("mail", "hour", account="vera", to="7/1h", for_ms=HOUR)
    assert [limit(each) for each in (before, during, after)] == [7, 7, 7]
    assert client.dbsize() == 2
    assert during.lift_override("mail", "hour", account="vera")
    assert [limit(each) for each in (before, during, after)] == [2, 2, 2]
    assert client.dbsize() == 0


def test_one_whose_algorithm_no_longer_fits_is_ignored(
    make: Callable[..., Guard], guard: Guard, admits: Callable[..., int]
) -> None:
    """When a deploy counts otherwise under the same name, the limit's own numbers hold."""
    guard.override("mail", "hour", account="vera", to="9/1h", for_ms=HOUR)
    table = {"name": "hour", "by": ["account"], "token_bucket": "1/1h", "burst": 3}
    changed = make(policies={"mail": {"limits": [table]}})
    assert changed.usage("mail", account="vera")[0].override_until_ms is None
    assert admits(changed, "mail") == 3


def test_exempt_counts_nothing_and_success_gives_nothing_back(
    guard: Guard, clock: Clock, admits: Callable[..., int]
) -> None:
    """What was counted before stays counted, and what comes while it holds never is."""
    guard.attempt("mail", account="vera", client=ADDRESS)
    guard.override("mail", "hour", account="vera", to=None, for_ms=MINUTE)
    for _ in range(5):
        attempt = guard.attempt("mail", account="vera", client=ADDRESS)
        assert attempt.decision.verdicts[0].exempt
        attempt.succeed()
        guard.attempt("mail", account="vera", client=ADDRESS).release()
        guard.attempt("mail", account="vera", client=ADDRESS)
    late = guard.attempt("mail", account="vera", client=ADDRESS)
    clock.advance(MINUTE)
    late.succeed()
    assert guard.usage("mail", account="vera")[0].used == 1
    assert admits(guard, "mail") == 1


@pytest.mark.parametrize("algorithm", ["sliding_log", "fixed_window", "sliding_window_counter"])
def test_what_was_counted_before_an_exemption_is_given_back(
    make: Callable[..., Guard], algorithm: str
) -> None:
    """What was counted and succeeds while its account is exempt takes its place back."""
    table = {"name": "hour", "by": ["account"], algorithm: "2/1h"}
    guard = make(policies={"mail": {"limits": [table]}})
    counted = guard.attempt("mail", account="vera", client=ADDRESS)
    guard.override("mail", "hour", account="vera", to=None, for_ms=MINUTE)
    exempt = guard.attempt("mail", account="vera", client=ADDRESS)
    counted.succeed()
    exempt.succeed()
    assert guard.usage("mail", account="vera")[0].used == 0
    guard.lift_override("mail", "hour", account="vera")
    assert guard.peek("mail", account="vera", client=ADDRESS).remaining == 2


def test_exempt_from_one_limit_is_not_from_others(guard: Guard, admits: Callable[..., int]) -> None:
    """The limits beside it count and refuse as ever, and what they held is given back."""
    guard.override("api", "hour", account="vera", to=None, for_ms=HOUR)
    guard.attempt("api", account="vera", client=ADDRESS).succeed()
    assert [usage.used for usage in guard.usage("api", account="vera")][:2] == [0, 0]
    assert admits(guard) == 4


def test_a_limit_by_the_account_s_device(guard: Guard, admits: Callable[..., int]) -> None:
    """An account's known device is the account's: its limit can be overridden too."""
    guard.override("api", "device", account="vera", to="5/1h", for_ms=HOUR)
    assert admits(guard, device="d1") == 5
    assert admits(guard, account="omar", device="d2") == 2


def test_usage_tells_of_it(guard: Guard, clock: Clock) -> None:
    """An operator sees numbers, end and exemption beside what is used."""
    clock.advance(1)
    guard.attempt("api", account="vera", client=ADDRESS)
    guard.override("api", "hour", account="vera", to="9/1h", for_ms=HOUR)
    guard.override("api", "day", account="vera", to=None, for_ms=MINUTE)
    hour, day, wait, *_ = guard.usage("api", account="vera")
    assert (hour.used, hour.limit, hour.override_until_ms) == (1, 9, clock.now_ms + HOUR)
    assert (day.used, day.exempt, day.override_until_ms) == (1, True, clock.now_ms + MINUTE)
    assert (wait.override_until_ms, wait.exempt) == (None, False)


def test_a_cost_that_only_an_override_admits(guard: Guard, clock: Clock) -> None:
    """What is dearer than the limit is an error until an override makes room for it."""
    with pytest.raises(ValueError, match="cost"):
        guard.attempt("mail", account="vera", client=ADDRESS, cost=5)
    guard.override("mail", "hour", account="vera", to="9/1h", for_ms=2 * HOUR)
    assert guard.attempt("mail", account="vera", client=ADDRESS, cost=5).decision.remaining == 4
    with pytest.raises(Denied) as caught:
        guard.attempt("mail", account="vera", client=ADDRESS, cost=5)
    assert caught.value.decision.retry_after_ms == HOUR
    clock.advance(HOUR)
    guard.override("mail", "hour", account="vera", to="1/1h", for_ms=MINUTE)
    with pytest.raises(Denied) as caught:
        guard.attempt("mail", account="vera", client=ADDRESS, cost=2)
    assert caught.value.decision.retry_after_ms == MINUTE


def test_a_guard_s_clock_that_steps_back(guard: Guard, clock: Clock) -> None:
    """What was set later than now holds no longer, until the clock has caught up with it."""
    ends_ms = guard.override("mail", "hour", account="vera", to="9/1h", for_ms=MINUTE)
    clock.advance(-1)
    (hour, *_) = guard.usage("mail", account="vera")
    assert (hour.limit, hour.override_until_ms) == (2, None)
    clock.advance(1)
    assert guard.usage("mail", account="vera")[0].override_until_ms == ends_ms


@pytest.mark.parametrize(
    ("limit", "how", "code"),
    [
        ("nothing hour", {}, "AG009"),
        ("api year", {}, "AG009"),
        ("api client", {}, "AG053"),
        ("api hour", {"to": "fast"}, "AG005"),
        ("api hour", {"to": "5/0h"}, "AG006"),
        ("api hour", {"to": limits.FixedWindow("5/1h")}, "AG005"),
        ("api hour", {"to": 5}, "AG005"),
        ("api hour", {"to": "9/2h"}, "AG006"),
        ("api day", {"to": "9/12h"}, "AG006"),
        ("api wait", {"to": "9s, 1s"}, "AG006"),
        ("api hour", {"to": limits.SlidingLog("9/1h", lockout="1d")}, "AG006"),
        ("api hour", {"to": limits.SlidingLog("9/1h", count_refused=True)}, "AG006"),
        ("api hour", {"to": limits.SlidingLog("9/2h")}, "AG006"),
        ("api day", {"to": limits.FixedWindow("50/24h", reserve=40)}, "AG006"),
        ("api day", {"to": limits.FixedWindow("50/1d", zone="UTC")}, "AG006"),
    ],
)
def test_what_can_not_be_overridden(
    guard: Guard, client: valkey.Valkey, limit: str, how: dict[str, Any], code: str
) -> None:
    """R12: a wrong name or number is an error with its code, and nothing is stored."""
    with pytest.raises(ConfigurationError) as caught:
        guard.override(*limit.split(), **({"account": "vera", "to": "9/1h", "for_ms": HOUR} | how))
    assert (caught.value.code, client.dbsize()) == (code, 0)


def test_an_algorithm_with_the_limit_s_own_options(make: Callable[..., Guard]) -> None:
    """An algorithm is taken as it is: with another option than the limit's it is AG006."""
    tables = [
        {"name": "log", "by": ["account"], "sliding_log": "5/1h", "lockout": "1h"},
        {"name": "kept", "by": ["account"], "fixed_window": "50/1h", "reserve": 5},
    ]
    guard = make(policies={"api": {"limits": tables}})
    same = {
        "log": limits.SlidingLog("9/1h", lockout="1h"),
        "kept": limits.FixedWindow("90/1h", reserve=5),
    }
    for name, to in same.items():
        guard.override("api", name, account="vera", to=to, for_ms=HOUR)
    verdicts = guard.peek("api", account="vera", client=ADDRESS).verdicts
    assert [verdict.limit for verdict in verdicts] == [9, 90]
    for name, to in {
        "log": limits.SlidingLog("2/1h", lockout="1d"),
        "kept": limits.FixedWindow("50/1h", reserve=40),
    }.items():
        with pytest.raises(ConfigurationError, match=r"AG006 to: .* more than its numbers"):
            guard.override("api", name, account="vera", to=to, for_ms=HOUR)


def test_an_override_as_text_keeps_the_options_of_the_account_s_tier(
    make: Callable[..., Guard],
) -> None:
    """A burst that a tier gives stays, if only the rate is overridden."""
    burst = {
        "token_bucket": "5/1s",
        "burst": 3,
        "tiers": {"pro": {"token_bucket": "20/1s", "burst": 20}},
    }
    guard = make(
        policies={"api": {"limits": [{"name": "burst", "by": ["account"], **burst}]}},
        tier={"vera": "pro"}.get,
    )
    for account, places in (("vera", 20), ("omar", 3)):
        guard.override("api", "burst", account=account, to="50/1s", for_ms=HOUR)
        (verdict,) = guard.peek("api", account=account, client=ADDRESS).verdicts
        assert (verdict.limit, verdict.window_ms) == (places, places * 20)
    guard.override(
        "api", "burst", account="vera", to=limits.TokenBucket("50/1s", burst=7), for_ms=HOUR
    )
    assert guard.peek("api", account="vera", client=ADDRESS).verdicts[0].limit == 7


@pytest.mark.parametrize("for_ms", [0, -1, 1.5, True, None, "1h", 3_651 * DAY], ids=repr)
def test_a_length_that_is_none(guard: Guard, client: valkey.Valkey, for_ms: Any) -> None:
    """B133: whole milliseconds from 1, ten years at most; all else is an error."""
    with pytest.raises(ValueError, match="for_ms"):
        guard.override("api", "hour", account="vera", to="9/1h", for_ms=for_ms)
    with pytest.raises(ValueError, match="for_ms"):
        guard.load(0.5, for_ms=for_ms)
    assert client.dbsize() == 0


@pytest.mark.parametrize("account", ["", "\ud800", 5], ids=repr)
def test_an_account_that_is_none(guard: Guard, account: Any) -> None:
    """What can't be an account is InvalidInput, as everywhere."""
    with pytest.raises(InvalidInput, match="account"):
        guard.override("api", "hour", account=account, to="9/1h", for_ms=HOUR)
