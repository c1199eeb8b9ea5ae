"""Retry-After is a promise: who waits exactly that long is admitted, who comes earlier is not."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.lua.conftest import Door


@pytest.mark.parametrize("costs", [(1,), (1, 2, 3, 4)], ids=["single", "mixed"])
def test_a_hundred_random_phases(
    door: Callable[..., Door], clock: Clock, costs: tuple[int, ...]
) -> None:
    """B070: refused at retry_after_ms - 1, admitted at retry_after_ms, 100 of 100 times."""
    login = door(("account", "7/1m"), ("client", "11/2m"), clock=clock)
    chance = random.Random(70)
    for phase in range(100):
        who: dict[str, Any] = {"account": f"vera{phase}", "client": f"198.51.100.{phase}"}
        cost = chance.choice(costs)
        while login.guard.peek("login", **who, cost=cost).allowed:
            login.fail(**who, cost=cost)
            clock.advance(chance.randrange(20_000))
            cost = chance.choice(costs)
        decision = login.refusal(**who, cost=cost)
        assert decision.retry_after == -(-decision.retry_after_ms // 1000)
        clock.advance(decision.retry_after_ms - 1)
        assert login.refusal(**who, cost=cost).retry_after_ms == 1
        clock.advance(1)
        login.fail(**who, cost=cost)


def test_the_wait_is_for_the_oldest(door: Callable[..., Door], clock: Clock) -> None:
    """B069: limit 2 in 60 s, tries at 0 and 10 s: at 20 s wait 40 s, at 61 s wait 9 s."""
    login = door(("account", "2/1m"), clock=clock)
    login.fail()
    clock.advance(10_000)
    login.fail()
    clock.advance(10_000)
    assert login.refusal().retry_after == 40
    clock.advance(40_000)
    login.fail()
    clock.advance(1000)
    assert login.refusal().retry_after == 9


@pytest.mark.parametrize(("left_ms", "seconds"), [(1900, 2), (1, 1), (2000, 2), (2001, 3)])
def test_rounded_up(door: Callable[..., Door], clock: Clock, left_ms: int, seconds: int) -> None:
    """B070: 1.9 s are 2, 0.001 s is 1, 2.000 s are 2."""
    login = door(("account", "1/1m"), clock=clock)
    login.fail()
    clock.advance(60_000 - left_ms)
    assert login.refusal().retry_after == seconds


def test_a_lowered_limit_waits_for_enough_to_leave(door: Callable[..., Door], clock: Clock) -> None:
    """B072: 8 used (t = 0, 10 .. 70 s), limit now 5: at 80 s wait until the 4th leaves, 250 s."""
    before, after = (door(("account", rate), clock=clock) for rate in ("10/5m", "5/5m"))
    for _ in range(8):
        before.fail()
        clock.advance(10_000)
    assert after.refusal().retry_after_ms == 250_000
    clock.advance(249_999)
    after.refusal()
    clock.advance(1)
    assert after.fail().remaining == 0


def test_remaining_is_never_negative(door: Callable[..., Door], clock: Clock) -> None:
    """B066: 8 used and the limit lowered from 10 to 5: refused, remaining 0."""
    before, after = (door(("account", rate), clock=clock) for rate in ("10/5m", "5/5m"))
    before.fail(8)
    assert after.refusal().remaining == 0
    assert after.verdict().remaining == 0


def test_hammering_only_sees_it_fall(door: Callable[..., Door], clock: Clock) -> None:
    """A40: ten minutes of refused tries: the wait falls strictly, and its last word is true."""
    login = door(("account", "5/15m"), clock=clock)
    login.fail(5)
    waits = []
    for _ in range(600):
        clock.advance(1000)
        waits.append(login.refusal().retry_after_ms)
    assert waits == list(range(899_000, 299_000, -1000))
    clock.advance(waits[-1] - 1)
    login.refusal()
    clock.advance(1)
    login.fail(5)


@pytest.mark.parametrize("lockout", [{}, {"lockout": "1s"}], ids=["window", "lock"])
def test_by_the_clock_of_the_store(door: Callable[..., Door], lockout: dict[str, str]) -> None:
    """B070: by the store's own clock, who sleeps exactly retry_after_ms is admitted at once."""
    login = door(("account", "2/1s", lockout))
    for _ in range(2):
        login.fail(cost=2)
        time.sleep(login.refusal(cost=2).retry_after_ms / 1000)
    login.fail(cost=2)
