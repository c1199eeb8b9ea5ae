"""A budget by the clock's own windows: cheap, and honest about the two bursts at a boundary."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from authguard.limits import FixedWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Gate

HOUR, DAY = 3_600_000, 86_400_000
TEN = ("global", FixedWindow("10/1h"))


@pytest.fixture
def clock(clock: Clock) -> Clock:
    """Start a millisecond after a boundary of hours and days."""
    clock.now_ms += DAY - clock.now_ms % DAY + 1
    return clock


def test_it_starts_anew_at_the_boundary(gate: Callable[..., Gate], clock: Clock) -> None:
    """The window ends sharp on the hour in UTC; who waits as told is admitted, and not before."""
    budget = gate(TEN)
    clock.advance(1_000)
    assert budget.attempt(cost=10).allowed
    refused = budget.attempt()
    assert refused.wait_ms == HOUR - 1_001
    clock.advance(refused.wait_ms - 1)
    assert budget.attempt().wait_ms == 1
    clock.advance(1)
    assert clock.now_ms % HOUR == 0
    assert budget.attempt(cost=10).allowed


def test_two_bursts_can_meet(gate: Callable[..., Gate], clock: Clock) -> None:
    """Up to twice the limit within one window's length, at a boundary, and never more."""
    budget = gate(TEN)
    clock.advance(HOUR - 2)
    admitted = sum(budget.attempt().allowed for _ in range(15))
    clock.advance(1)
    admitted += sum(budget.attempt().allowed for _ in range(15))
    assert admitted == 20


def test_cost_and_remaining(gate: Callable[..., Gate], clock: Clock) -> None:
    """A cost takes so many places or none; more than could ever be free waits for ever."""
    budget = gate(TEN)
    for cost, allowed, remaining in ((4, True, 6), (7, False, 6), (6, True, 0)):
        decision = budget.attempt(cost=cost).decision
        assert (decision.allowed, decision.remaining) == (allowed, remaining)
        assert decision.reset_after_ms == HOUR - 1
    assert budget.inspect()[0].frees_after_ms == HOUR - 1


def test_the_reserve_is_kept_for_known_devices(gate: Callable[..., Gate]) -> None:
    """Without a known device the last places are not to be had; with one they are."""
    budget = gate(("global", FixedWindow("10/1h", reserve=3)))
    assert [budget.attempt().allowed for _ in range(8)] == [True] * 7 + [False]
    known = [budget.attempt(device="d").allowed for _ in range(4)]
    assert known == [True] * 3 + [False]
    (verdict,) = budget.peek().verdicts
    assert (verdict.limit, verdict.remaining) == (10, 0)


def test_a_settle_in_its_own_window(
    gate: Callable[..., Gate], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Places come back while the attempt's own window runs, and not to the next one."""
    budget = gate(TEN)
    early = budget.attempt(cost=4)
    assert early.release().entries == 4
    assert store() == {}
    late = budget.attempt(cost=4)
    clock.advance(HOUR)
    budget.attempt(cost=2)
    assert late.release().entries == 0
    assert budget.inspect()[0].used == 2


def test_a_settle_after_a_clear(gate: Callable[..., Gate]) -> None:
    """What an operator cleared comes back no second time, not even from what others took since."""
    budget = gate(TEN)
    tried, other = budget.attempt(cost=4), budget.attempt()
    assert (budget.clear().entries, tried.release().entries) == (5, 0)
    budget.attempt(cost=3)
    assert (other.succeed().entries, budget.inspect()[0].used) == (0, 3)


@pytest.mark.parametrize("back_ms", [1, HOUR, 10_000 * HOUR])
def test_under_a_clock_that_steps_back(
    gate: Callable[..., Gate], clock: Clock, back_ms: int
) -> None:
    """Rule 7: a full one refuses for at most one window more, told once and kept to."""
    budget = gate(TEN)
    budget.attempt(cost=10)
    clock.advance(-back_ms)
    wait_ms = budget.attempt().wait_ms
    assert wait_ms <= 2 * HOUR
    clock.advance(wait_ms - 1)
    assert budget.attempt().wait_ms == 1
    clock.advance(1)
    assert budget.attempt(cost=10).allowed


def test_crossing_a_boundary_again_and_again(gate: Callable[..., Gate], clock: Clock) -> None:
    """Rule 7: a clock that goes back and forth over a boundary gives no third burst."""
    budget = gate(TEN)
    clock.advance(HOUR - 2)
    admitted = 0
    for _ in range(10):
        admitted += sum(budget.attempt().allowed for _ in range(12))
        clock.advance(1)
        admitted += sum(budget.attempt().allowed for _ in range(12))
        clock.advance(-1)
    assert admitted == 20


def test_twenty_at_once(gate: Callable[..., Gate], clock: Clock) -> None:
    """Of twenty in one moment ten get the ten places, every time."""
    budget = gate(TEN)
    barrier = Barrier(20)

    def one(_: int) -> bool:
        barrier.wait()
        return budget.attempt().allowed

    with ThreadPoolExecutor(20) as crowd:
        for _ in range(10):
            assert list(crowd.map(one, range(20))).count(True) == 10
            clock.advance(HOUR)


def test_a_key_of_one_size_that_ends_with_its_window(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """The value is of 17 bytes whatever it counts, and its key ends with the window."""
    budget = gate(("global", FixedWindow("1000000000/1h")), own_clock=True)
    for cost in (1, 999_999_000):
        now_ms = budget.attempt(cost=cost).decision.now_ms
        (key,) = client.scan_iter()
        assert client.strlen(key) == 17
        assert client.pexpiretime(key) == now_ms - now_ms % HOUR + HOUR


def test_a_key_robbed_of_its_expiry_gets_one_again(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """No key lives for ever: a refused try mends what somebody persisted."""
    budget = gate(("global", FixedWindow("1/1h")))
    budget.attempt()
    (key,) = client.scan_iter()
    client.persist(key)
    budget.attempt()
    assert client.pttl(key) > 0


def test_a_lowered_limit_holds_at_once(gate: Callable[..., Gate]) -> None:
    """Numbers are no part of a key: a lowered limit refuses what is above it, and tells 0 left."""
    gate(TEN).attempt(cost=8)
    lowered = gate(("global", FixedWindow("5/1h")))
    decision = lowered.attempt().decision
    assert (decision.allowed, decision.remaining) == (False, 0)


def test_clear(gate: Callable[..., Gate], client: valkey.Valkey) -> None:
    """A clear gives all places back, says how many they were, and is forgotten with the window."""
    budget = gate(TEN, own_clock=True)
    assert budget.clear().entries == client.dbsize() == 0
    now_ms = budget.attempt(cost=8).decision.now_ms
    assert (budget.clear().entries, budget.clear().entries) == (8, 0)
    assert budget.inspect()[0].used == 0
    (key,) = client.scan_iter()
    assert client.pexpiretime(key) == now_ms - now_ms % HOUR + HOUR
