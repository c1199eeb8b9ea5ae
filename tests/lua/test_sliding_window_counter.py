"""A sliding window as two counters estimate it: exact about its estimate, honest about bursts."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from authguard.limits import SlidingWindowCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Gate, Tried

S, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
HUNDRED = ("client", SlidingWindowCounter("100/1m"))
TEN = ("client", SlidingWindowCounter("10/1h"))


@pytest.fixture
def clock(clock: Clock) -> Clock:
    """Start at a boundary of minutes, hours and days."""
    clock.now_ms += DAY - clock.now_ms % DAY
    return clock


def test_the_worked_example(gate: Callable[..., Gate], clock: Clock) -> None:
    """80 in the minute before, 30 in this one, 15 s into it: 90 of 100, so ten more, not eleven."""
    counter = gate(HUNDRED)
    assert counter.attempt(cost=80).allowed
    clock.advance(MINUTE + 15 * S - 1)
    assert counter.attempt(cost=30).allowed
    clock.advance(1)
    assert (counter.inspect()[0].used, counter.peek().remaining) == (90, 10)
    assert not counter.peek(cost=11).allowed
    assert [counter.attempt().allowed for _ in range(11)] == [True] * 10 + [False]


def test_an_estimate_is_never_rounded_in_favour(gate: Callable[..., Gate], clock: Clock) -> None:
    """A part of a place is a whole one that is taken: 1 ms before its share falls it is refused."""
    counter = gate(TEN)
    assert counter.attempt(cost=10).allowed
    clock.advance(HOUR + HOUR // 10 - 1)
    decision = counter.peek()
    assert (decision.allowed, decision.remaining, decision.retry_after_ms) == (False, 0, 1)
    clock.advance(1)
    assert counter.peek().remaining == 1
    assert [counter.attempt().allowed for _ in range(2)] == [True, False]


def test_each_window_s_edge(gate: Callable[..., Gate], clock: Clock) -> None:
    """R1: what was counted weighs whole to its window's end, and at the next one's end nothing."""
    counter = gate(TEN)
    assert counter.attempt(cost=10).allowed
    for ms in (HOUR - 1, 1):
        clock.advance(ms)
        assert (counter.peek().remaining, counter.inspect()[0].used) == (0, 10)
    clock.advance(HOUR - 1)
    decision = counter.peek(cost=10)
    assert (decision.remaining, decision.retry_after_ms, decision.reset_after_ms) == (9, 1, 1)
    clock.advance(1)
    assert counter.attempt(cost=10).allowed


def test_bursts_at_far_edges_can_pass_twice_the_limit_nearly(
    gate: Callable[..., Gate], clock: Clock
) -> None:
    """It takes the places before to be spread evenly: after a late burst it admits too soon."""
    counter = gate(TEN)
    clock.advance(HOUR - 1)
    assert counter.attempt(cost=10).allowed
    clock.advance(HOUR - 1)
    admitted = sum(counter.attempt().allowed for _ in range(12))
    assert admitted == 9
    clock.advance(2)
    assert sum(counter.attempt().allowed for _ in range(12)) == 1


@pytest.mark.parametrize("seed", range(4))
def test_it_decides_as_fractions_do(gate: Callable[..., Gate], clock: Clock, seed: int) -> None:
    """Any order of tries, costs and settles: each verdict is that of the estimate in fractions."""
    draw = random.Random(seed)
    limit, window = draw.choice([(7, 3 * S), (10, 7 * S), (3, 1 * S), (25, 11 * S)])
    counter = gate(("client", SlidingWindowCounter(f"{limit}/{window // S}s")))
    kept: list[Tried] = []

    def estimate() -> Fraction:
        number, into = divmod(clock.now_ms, window)
        held = [0, 0]
        for tried in kept:
            age = number - tried.decision.now_ms // window
            if age < 2:
                held[age] += tried.reservation.cost
        return held[0] + Fraction(held[1] * (window - into), window)

    for _ in range(250):
        clock.advance(draw.choice([0, 0, 1, 7, 333, draw.randrange(window), draw.randrange(1000)]))
        cost = draw.choice([1, 1, 1, 2, limit])
        before = estimate()
        tried = counter.attempt(cost=cost)
        assert tried.allowed is (before + cost <= limit)
        if tried.allowed:
            kept.append(tried)
        assert tried.decision.remaining == max(0, (limit - estimate()) // 1)
        if kept and draw.random() < 0.2:
            given = kept.pop(draw.randrange(max(0, len(kept) - 4), len(kept)))
            given.settle(succeeded=draw.random() < 0.5)


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_settle_gives_back_what_still_counts(
    gate: Callable[..., Gate],
    clock: Clock,
    store: Callable[[], dict[bytes, bytes]],
    succeeded: bool,
) -> None:
    """Places come back to this window or to the one before, and later to nobody."""
    counter = gate(TEN)
    early, late = counter.attempt(cost=4), counter.attempt(cost=6)
    assert early.settle(succeeded=succeeded).entries == 4
    assert counter.inspect()[0].used == 6
    clock.advance(HOUR)
    assert counter.attempt(cost=4).allowed
    assert late.settle(succeeded=succeeded).entries == 6
    assert counter.inspect()[0].used == 4
    clock.advance(HOUR)
    assert counter.attempt(cost=6).allowed
    assert (late.settle(succeeded=succeeded).entries, counter.inspect()[0].used) == (0, 10)
    alone = counter.attempt(account="vera", client="198.51.100.7")
    before = len(store())
    assert alone.settle(succeeded=succeeded).entries == 1
    assert len(store()) == before - 1


@pytest.mark.parametrize("after_ms", [0, HOUR, 2 * HOUR - 1])
def test_a_settle_after_a_clear(gate: Callable[..., Gate], clock: Clock, after_ms: int) -> None:
    """What an operator cleared takes nothing from what others took since."""
    counter = gate(TEN)
    tried = counter.attempt(cost=4)
    assert counter.clear().entries == 4
    counter.attempt(cost=2)
    clock.advance(after_ms)
    counter.attempt(cost=2)
    before = counter.inspect()[0].used
    assert (tried.release().entries, counter.inspect()[0].used) == (0, before)


@pytest.mark.parametrize("back_ms", [1, HOUR - 1, HOUR, 10_000 * HOUR])
def test_under_a_clock_that_steps_back(
    gate: Callable[..., Gate], clock: Clock, back_ms: int
) -> None:
    """Rule 7: a full one refuses for at most a window more than it would, told once and kept to."""
    counter = gate(TEN)
    clock.advance(MINUTE)
    counter.attempt(cost=10)
    clock.advance(-back_ms)
    wait_ms = counter.attempt(cost=10).wait_ms
    assert HOUR < wait_ms <= 2 * HOUR
    clock.advance(wait_ms - 1)
    assert counter.attempt(cost=10).wait_ms == 1
    clock.advance(1)
    assert counter.attempt(cost=10).allowed


def test_crossing_a_boundary_again_and_again(gate: Callable[..., Gate], clock: Clock) -> None:
    """Rule 7: a clock that goes back and forth over a boundary gives no third burst."""
    counter = gate(TEN)
    clock.advance(HOUR - 1)
    admitted = 0
    for _ in range(9):
        for ms in (0, 1, 6 * MINUTE):
            clock.advance(ms)
            admitted += sum(counter.attempt().allowed for _ in range(12))
        clock.advance(-6 * MINUTE - 1)
    assert admitted <= 20


def test_a_key_of_one_size_that_ends_when_it_weighs_nothing(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """The value is of 28 bytes whatever it counts; its key ends with the next window."""
    counter = gate(("client", SlidingWindowCounter("600000000/1h")), own_clock=True)
    for cost in (1, 599_999_000):
        decision = counter.attempt(cost=cost).decision
        (key,) = client.scan_iter()
        assert client.strlen(key) == 28
        ends_ms = decision.now_ms - decision.now_ms % HOUR + 2 * HOUR
        assert client.pexpiretime(key) == ends_ms
        assert decision.reset_after_ms == ends_ms - decision.now_ms


def test_a_key_robbed_of_its_expiry_gets_one_again(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """No key lives for ever: a refused try mends what somebody persisted."""
    counter = gate(TEN)
    counter.attempt(cost=10)
    (key,) = client.scan_iter()
    assert client.persist(key)
    assert not counter.attempt().allowed
    assert client.pttl(key) > 0


def test_a_lowered_limit_holds_at_once(gate: Callable[..., Gate], clock: Clock) -> None:
    """B072: the wait of a limit that was lowered below what is used is until enough has gone."""
    gate(TEN).attempt(cost=8)
    lowered = gate(("client", SlidingWindowCounter("5/1h")))
    refused = lowered.attempt()
    assert refused.decision.remaining == 0
    assert refused.wait_ms == HOUR + HOUR // 2
    clock.advance(refused.wait_ms - 1)
    assert not lowered.peek().allowed
    clock.advance(1)
    assert lowered.attempt().allowed


def test_clear(gate: Callable[..., Gate], client: valkey.Valkey) -> None:
    """A clear gives all places back, says how many, and is forgotten once nothing could settle."""
    counter = gate(TEN, own_clock=True)
    assert counter.clear().entries == client.dbsize() == 0
    now_ms = counter.attempt(cost=8).decision.now_ms
    assert (counter.clear().entries, counter.clear().entries) == (8, 0)
    assert counter.inspect()[0].used == 0
    (key,) = client.scan_iter()
    assert client.pexpiretime(key) == now_ms - now_ms % HOUR + 2 * HOUR
