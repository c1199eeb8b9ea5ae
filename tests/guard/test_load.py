"""Under load elastic limits shrink for all workers at once, and operators keep their own share."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, Denied, Overloaded
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from tests.conftest import Clock

MINUTE, HOUR = 60_000, 3_600_000
#: A shop: what all may ask of it in a minute, what one client may, and what its operators may.
SHOP = {
    "shop": {
        "limits": [
            {"name": "all", "by": ["global"], "fixed_window": "100/1m", "elastic": True,
             "priority": "normal"},
            {"name": "operators", "by": ["global"], "fixed_window": "20/1m",
             "priority": "operator"},
            {"name": "client", "by": ["client"], "sliding_log": "40/1m"},
        ]
    }
}  # fmt: skip


@pytest.fixture
def make(guard_factory: Callable[..., Guard], clock: Clock) -> Callable[..., Guard]:
    """Make guards of the shop, on one clock that starts at a full minute."""
    clock.now_ms += MINUTE - clock.now_ms % MINUTE
    return lambda **settings: guard_factory(**({"policies": SHOP, "clock": clock} | settings))


@pytest.fixture
def guard(make: Callable[..., Guard]) -> Guard:
    """Make one."""
    return make()


def asks(guard: Guard, times: int, **how: Any) -> tuple[int, int, int]:
    """Ask so often, each from a client of its own; give how many got in, 503 and 429."""
    got_in = overloaded = denied = 0
    for number in range(times):
        who = {"account": "vera", "client": f"198.51.{number // 250}.{number % 250}"} | how
        try:
            guard.attempt("shop", **who)
        except Overloaded:
            overloaded += 1
        except Denied:
            denied += 1
        else:
            got_in += 1
    return got_in, overloaded, denied


def test_operators_get_in_while_the_rest_get_their_share(guard: Guard) -> None:
    """At a fifth of the capacity ordinary traffic gets a fifth; operators keep all of theirs."""
    guard.load(0.2)
    assert asks(guard, 60) == (20, 40, 0)
    assert asks(guard, 20, priority="operator") == (20, 0, 0)
    assert asks(guard, 1, priority="normal") == (0, 1, 0)


def test_with_no_capacity_at_all_only_operators_get_in(guard: Guard, clock: Clock) -> None:
    """At 0 everyone else is told 503 and when to come again; operators have 100 % success."""
    guard.load(0, for_ms=30_000)
    assert asks(guard, 50) == (0, 50, 0)
    assert asks(guard, 20, priority="operator") == (20, 0, 0)
    with pytest.raises(Overloaded) as caught:
        guard.attempt("shop", account="vera", client="192.0.2.1")
    assert caught.value.decision.refused_by == ("all",)
    assert caught.value.retry_after == 30
    clock.advance(30_000)
    assert asks(guard, 50) == (50, 0, 0)


def test_operators_have_a_limit_too(guard: Guard) -> None:
    """More operators than their lane admits are a plain refusal: the load didn't do it."""
    assert asks(guard, 25, priority="operator") == (20, 0, 5)


def test_what_a_whole_limit_refuses_is_no_overload(guard: Guard) -> None:
    """Denied where the limit would refuse without any load, or another limit refuses besides."""
    assert asks(guard, 99) == (99, 0, 0)
    guard.load(0.5)
    assert asks(guard, 1) == (0, 1, 0)
    guard.load(1)
    assert asks(guard, 2) == (1, 0, 1)
    guard.load(0.5)
    assert asks(guard, 1) == (0, 0, 1)


def test_a_client_s_own_refusal_comes_first(guard: Guard) -> None:
    """Who has used up its own limit gets 429, whatever the load is besides."""
    guard.load(0.5)
    assert asks(guard, 41, client="192.0.2.1") == (40, 0, 1)
    guard.load(0.2)
    assert asks(guard, 1, client="192.0.2.1") == (0, 0, 1)
    assert asks(guard, 1, client="192.0.2.2") == (0, 1, 0)


def test_a_refusal_by_the_load_charges_nothing(guard: Guard, client: valkey.Valkey) -> None:
    """R3: who was shed has used no place of any limit."""
    guard.load(0)
    before = {key: client.get(key) for key in client.scan_iter()}
    assert asks(guard, 10, client="192.0.2.1") == (0, 10, 0)
    assert {key: client.get(key) for key in client.scan_iter()} == before


def test_every_worker_sees_it_at_its_next_attempt(make: Callable[..., Guard], clock: Clock) -> None:
    """One says it and all heed it; of several who say it, the last one counts."""
    probe, *workers = (make() for _ in range(4))
    probe.load(0)
    assert [asks(worker, 1) for worker in workers] == [(0, 1, 0)] * 3
    workers[0].load(0.5)
    assert [each.current_load() for each in (probe, *workers)] == [0.5] * 4
    assert [asks(worker, 1) for worker in workers] == [(1, 0, 0)] * 3
    probe.load(1)
    assert [asks(worker, 30) for worker in workers] == [(30, 0, 0)] * 3


def test_workers_together_get_one_share(make: Callable[..., Guard]) -> None:
    """However many workers ask at once, all together are given the share, exactly."""
    workers = [make() for _ in range(4)]
    workers[0].load(0.3)

    def one(number: int) -> bool:
        return asks(workers[number % 4], 1, client=f"192.0.2.{number}")[0] == 1

    with ThreadPoolExecutor(8) as crowd:
        assert list(crowd.map(one, range(80))).count(True) == 30


def test_it_ends_by_itself_unless_it_is_said_again(guard: Guard, clock: Clock) -> None:
    """A probe that dies leaves no brake on: after its time the whole capacity is there."""
    guard.load(0.2, for_ms=10_000)
    clock.advance(9_999)
    assert guard.current_load() == 0.2
    guard.load(0.1, for_ms=10_000)
    clock.advance(9_999)
    assert guard.current_load() == 0.1
    clock.advance(1)
    assert guard.current_load() == 1.0
    assert guard.peek("shop", account="vera", client="192.0.2.1").verdicts[0].limit == 100


def test_by_the_store_s_clock_its_key_ends_with_it(
    make: Callable[..., Guard], client: valkey.Valkey
) -> None:
    """R11: the load is a key of 14 bytes that expires by itself, a minute where nothing is said."""
    guard = make(clock=None)
    guard.load(0.5)
    (key,) = client.scan_iter()
    assert client.strlen(key) == 14
    assert 50_000 < client.pttl(key) <= MINUTE
    guard.load(0.5, for_ms=200)
    assert client.pttl(key) <= 200


def test_under_two_secrets(make: Callable[..., Guard]) -> None:
    """While secrets are changed old and new workers heed one load."""
    old, new = SECRET, SECRET[::-1]
    before, during, after = make(secret=old), make(secret=[new, old]), make(secret=new)
    before.load(0.3)
    assert [each.current_load() for each in (before, during, after)] == [0.3, 0.3, 1.0]
    assert asks(during, 40) == (30, 10, 0)
    during.load(0.5)
    assert [each.current_load() for each in (before, during, after)] == [0.5, 0.5, 0.5]


def test_nothing_elastic_asks_for_no_load(
    make: Callable[..., Guard], client: valkey.Valkey
) -> None:
    """A policy without elastic limits is as it was, at any load."""
    table = {"name": "all", "by": ["client"], "sliding_log": "5/1m"}
    guard = make(policies={"shop": {"limits": [table]}})
    guard.load(0)
    assert asks(guard, 6, client="192.0.2.1") == (5, 0, 1)


def test_priorities_and_tiers_that_nobody_has(guard: Guard, make: Callable[..., Guard]) -> None:
    """R12, B136: a misspelt lane or plan is no free pass: AG052 and AG051, naming what there is."""
    for ask in (guard.attempt, guard.peek):
        with pytest.raises(ConfigurationError, match=r"AG052 .*'oprator'; take .*operator"):
            ask("shop", account="vera", client="192.0.2.1", priority="oprator")
    table = {"name": "it", "by": ["account"], "sliding_log": "5/1m", "tiers": {"pro": "9/1m"}}
    shop = make(policies={"shop": {"limits": [table]}}, tier=lambda _: "por")
    for ask in (shop.attempt, shop.peek):
        with pytest.raises(ConfigurationError, match=r"AG051 .*'por'; take .*pro"):
            ask("shop", account="vera", client="192.0.2.1")
    assert asks(shop, 10, tier="pro") == (9, 0, 1)


def test_no_lane_lets_an_attempt_in_uncounted(make: Callable[..., Guard]) -> None:
    """AG023: an attempt of a priority that no limit counts is stopped, and told what is known."""
    table = {"name": "lane", "by": ["client"], "priority": "staff", "sliding_log": "2/1m"}
    guard = make(policies={"shop": {"limits": [table]}})
    guard.attempt("shop", account="vera", client="192.0.2.1", priority="staff")
    with pytest.raises(ConfigurationError, match=r"AG023 \[shop\].*known is .*priority normal"):
        guard.attempt("shop", account="vera", client="192.0.2.1")


@pytest.mark.parametrize("given", [["pro"], 5, {}, b"pro", True, ""], ids=repr)
def test_what_is_no_name_of_a_tier_or_a_lane(
    guard: Guard, make: Callable[..., Guard], given: Any
) -> None:
    """What is no text is AG051 and AG052 too, from the caller as from the app's function."""
    table = {"name": "it", "by": ["account"], "sliding_log": "5/1m", "tiers": {"pro": "9/1m"}}
    policies = {"shop": {"limits": [table]}}
    for ask in (guard.attempt, guard.peek):
        with pytest.raises(ConfigurationError, match="AG052 priority"):
            ask("shop", account="vera", client="192.0.2.1", priority=given)
    for shop, how in (
        (make(policies=policies), {"tier": given}),
        (make(policies=policies, tier=lambda _: given), {}),
    ):
        for ask in (shop.attempt, shop.peek):
            with pytest.raises(ConfigurationError, match="AG051 tier"):
                ask("shop", account="vera", client="192.0.2.1", **how)


def test_a_tier_without_numbers_has_the_limit_s_own(make: Callable[..., Guard]) -> None:
    """A plan named as ``free = {}`` is known, and an option alone changes that option alone."""
    bucket = {"name": "it", "by": ["account"], "token_bucket": "1/1h", "burst": 5}
    tables = [{**bucket, "tiers": {"free": {}, "pro": {"burst": 9}}}]
    shop = make(policies={"shop": {"limits": tables}})
    assert asks(shop, 10, tier="free") == (5, 0, 5)
    assert asks(shop, 10, account="omar", tier="pro") == (9, 0, 1)


def test_the_app_is_asked_for_a_tier_only_where_there_are_some(
    make: Callable[..., Guard],
) -> None:
    """A look-up of the account's plan costs nothing where no limit of the action has one."""
    asked: list[str] = []
    table = {"name": "it", "by": ["account"], "sliding_log": "5/1m", "tiers": {"pro": "9/1m"}}
    policies = SHOP | {"api": {"limits": [table]}}
    guard = make(policies=policies, tier=asked.append)
    guard.attempt("shop", account="Vera", client="192.0.2.1")
    assert asked == []
    guard.attempt("api", account="Vera", client="192.0.2.1")
    assert asked == ["vera"]


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf, True, None, "0.5", 2], ids=repr)
def test_a_share_that_is_none(guard: Guard, client: valkey.Valkey, share: Any) -> None:
    """B133: a share is a number from 0 to 1; all else is an error, and nothing is stored."""
    with pytest.raises(ValueError, match="share"):
        guard.load(share)
    assert client.dbsize() == 0
