"""A cost that a request chose: whatever number it is, it is judged before the store is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import Cooldown, Distinct, SlidingLog, TokenBucket
from authguard.errors import TooDear

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard

VERA = {"account": "vera", "client": "192.0.2.1"}
HUGE = [10**9 + 1, 2**53 + 1, 10**19, 10**4000, 10**4300]
#: By hand: the last has too many digits to be written out.
IDS = ["billion", "2**53", "10**19", "10**4000", "10**4300"]


@pytest.fixture
def guard(guard_factory: Callable[..., Guard]) -> Guard:
    """Make a guard whose limit an operator could raise for an account, and one that counts all."""
    table = {"name": "it", "by": ["account"], "sliding_log": "5/1h"}
    wait = {"name": "wait", "by": ["account"], "cooldown": ["1h"]}
    return guard_factory(policies={"act": {"limits": [table]}, "send": {"limits": [wait]}})


@pytest.mark.parametrize("cost", HUGE, ids=IDS)
@pytest.mark.parametrize("action", ["act", "send"])
def test_more_than_any_limit_is_too_dear(
    guard: Guard, client: valkey.Valkey, action: str, cost: int
) -> None:
    """Over a billion is TooDear at once, though an override may raise the limit: no crash."""
    for ask in (guard.attempt, guard.peek):
        with pytest.raises(TooDear, match="is more than any limit could ever admit") as caught:
            ask(action, cost=cost, **VERA)
        assert len(str(caught.value)) < 90
    assert client.dbsize() == 0


@pytest.mark.parametrize("cost", [-(10**4300), -1, 0], ids=["-10**4300", "-1", "0"])
def test_less_than_one_is_no_cost(guard: Guard, cost: int) -> None:
    """A number of so many digits is told in an error, however long it is."""
    for ask in (guard.attempt, guard.peek):
        with pytest.raises(ValueError, match="cost: must be a whole number") as caught:
            ask("act", cost=cost, **VERA)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("cost", HUGE, ids=IDS)
@pytest.mark.parametrize(
    "limit",
    [SlidingLog("5/1h"), TokenBucket("5/1s", burst=5), Cooldown("1s"), Distinct("account", "5/1h")],
    ids=lambda limit: limit.algorithm,
)
def test_a_limiter_knows_it_too(guard: Guard, client: valkey.Valkey, limit: Any, cost: int) -> None:
    """By itself an algorithm judges a cost likewise, also where it makes no difference."""
    limiter = guard.limiter(limit)
    value = {"value": "vera"} if isinstance(limit, Distinct) else {}
    for ask in (limiter.hit, limiter.peek):
        with pytest.raises(TooDear):
            ask("a", cost, **value)
    assert client.dbsize() == 0


@pytest.mark.parametrize("by", ["account", "global"])
@pytest.mark.parametrize("outage", ["deny", "allow"])
def test_what_a_reserve_never_admits_is_too_dear(
    guard_factory: Callable[..., Guard], client: valkey.Valkey, by: str, outage: str
) -> None:
    """More than a reserve leaves is TooDear, no failed reply that lets all in uncounted."""
    table = {"name": "it", "by": [by], "fixed_window": "10/1d", "reserve": 5}
    guard = guard_factory(policies={"act": {"outage": outage, "limits": [table]}})
    for ask in (guard.attempt, guard.peek):
        for cost in (6, 10, 11):
            with pytest.raises(TooDear):
                ask("act", cost=cost, **VERA)
    assert client.dbsize() == 0
    assert guard.attempt("act", cost=5, **VERA).decision.allowed


def test_a_billion_is_judged_by_the_limit(guard_factory: Callable[..., Guard]) -> None:
    """The largest count that a limit can have is a cost, where there is such a limit."""
    table = {"name": "it", "by": ["account"], "fixed_window": "1000000000/1h"}
    guard = guard_factory(policies={"act": {"limits": [table]}})
    assert guard.attempt("act", cost=10**9, **VERA).decision.remaining == 0
