"""A queue whose turns come at a steady rate: who is admitted is told how long to wait."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from authguard.limits import FixedWindow, LeakyBucket

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Gate, Tried

S, HOUR = 1_000, 3_600_000
TEN = ("client", LeakyBucket("10/1s", queue=20))


def leaves_ms(tried: Tried) -> int:
    """Say when an admitted message leaves."""
    assert tried.allowed
    assert tried.wait_ms == 0
    return tried.decision.now_ms + tried.decision.delay_ms


@pytest.mark.parametrize(("rate", "period_ms"), [(10, S), (3, S), (7, 60 * S), (1000, 3 * S)])
def test_messages_leave_within_a_millisecond_of_their_times(
    gate: Callable[..., Gate], clock: Clock, rate: int, period_ms: int
) -> None:
    """A hundred messages that come in bursts leave at k * period / rate, to the millisecond."""
    draw = random.Random(rate)
    pacer = gate(("client", LeakyBucket(f"{rate}/{period_ms // S}s", queue=100)))
    start_ms = clock.now_ms
    for number in range(100):
        exact_ms = number * period_ms / rate
        assert 0 <= leaves_ms(pacer.attempt()) - start_ms - exact_ms < 1
        # Wait for less than what has been queued, so that there is always work.
        queued_ms = start_ms + exact_ms + period_ms / rate - clock.now_ms
        if draw.random() < 0.3:
            clock.advance(draw.randint(0, int(queued_ms)))


def test_after_idle_it_starts_at_once(gate: Callable[..., Gate], clock: Clock) -> None:
    """Who comes when everything has left doesn't wait; 1 ms sooner it waits for 1 ms."""
    pacer = gate(TEN)
    assert pacer.attempt(cost=3).decision.delay_ms == 0
    clock.advance(299)
    assert pacer.peek().delay_ms == 1
    clock.advance(1)
    assert pacer.attempt().decision.delay_ms == 0
    clock.advance(HOUR)
    assert [pacer.attempt().decision.delay_ms for _ in range(3)] == [0, 100, 200]


def test_a_full_queue_refuses(gate: Callable[..., Gate], clock: Clock) -> None:
    """R2, R4: one leaves and twenty wait; the next is refused until a place is free, sharp."""
    pacer = gate(TEN)
    delays = [pacer.attempt().decision.delay_ms for _ in range(21)]
    assert delays == list(range(0, 2_100, 100))
    for _ in range(5):
        refused = pacer.attempt()
        assert (refused.allowed, refused.wait_ms, refused.decision.delay_ms) == (False, 100, 0)
        clock.advance(99)
        assert pacer.attempt().wait_ms == 1
        clock.advance(1)
        assert pacer.attempt().decision.delay_ms == 2_000


def test_without_a_queue_each_waits_for_the_one_before(
    gate: Callable[..., Gate], clock: Clock
) -> None:
    """A queue of 0 admits one for each turn, and none is delayed."""
    pacer = gate(("client", LeakyBucket("10/1s", queue=0)))
    for _ in range(5):
        tried = pacer.attempt()
        assert (tried.allowed, tried.decision.delay_ms) == (True, 0)
        assert pacer.attempt().wait_ms == 100
        clock.advance(100)


def test_cost_takes_so_many_turns(gate: Callable[..., Gate], clock: Clock) -> None:
    """What follows a message of cost 5 leaves five turns later; a cost waits for all its places."""
    pacer = gate(TEN)
    assert [pacer.attempt(cost=cost).decision.delay_ms for cost in (5, 1, 10)] == [0, 500, 600]
    refused = pacer.attempt(cost=8)
    assert refused.wait_ms == 300
    clock.advance(299)
    assert not pacer.attempt(cost=8).allowed
    clock.advance(1)
    assert pacer.attempt(cost=8).decision.delay_ms == 1_300


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_turn_that_was_given_stays_given(
    gate: Callable[..., Gate], store: Callable[[], dict[bytes, bytes]], succeeded: bool
) -> None:
    """A settle gives no turn to another: two would leave at one time."""
    pacer = gate(TEN)
    first = pacer.attempt()
    before = store()
    assert first.settle(succeeded=succeeded).entries == 0
    assert store() == before
    assert pacer.attempt().decision.delay_ms == 100


def test_no_two_turns_are_closer_than_the_rate(gate: Callable[..., Gate], clock: Clock) -> None:
    """However they come and whatever is given back, messages leave a turn apart, or later."""
    draw = random.Random(11)
    pacer = gate(("client", LeakyBucket("3/1s", queue=4)))
    turns = []
    for _ in range(400):
        clock.advance(draw.choice([0, 1, 100, draw.randint(0, 900)]))
        tried = pacer.attempt()
        if tried.allowed:
            turns.append(leaves_ms(tried))
            if draw.random() < 0.5:
                tried.release()
    assert len(turns) > 150
    for at, leaving in enumerate(turns):
        for later, after in enumerate(turns[at + 1 : at + 6], 1):
            assert after - leaving > later * 1000 / 3 - 1


def test_no_two_of_a_crowd_share_a_turn(gate: Callable[..., Gate], clock: Clock) -> None:
    """Of forty messages in one moment 21 are admitted, each with a turn of its own, every time."""
    pacer = gate(TEN)
    barrier = Barrier(40)

    def one(_: int) -> Tried:
        barrier.wait()
        return pacer.attempt()

    with ThreadPoolExecutor(40) as crowd:
        for _ in range(5):
            tried = list(crowd.map(one, range(40)))
            delays = sorted(each.decision.delay_ms for each in tried if each.allowed)
            assert delays == list(range(0, 2_100, 100))
            clock.advance(HOUR)


@pytest.mark.parametrize("back_ms", [1, HOUR, 10_000 * HOUR])
def test_under_a_clock_that_steps_back(
    gate: Callable[..., Gate], clock: Clock, back_ms: int
) -> None:
    """Rule 7: the queue is as long as it was, and a full one waits as long as ever."""
    pacer = gate(TEN)
    pacer.attempt(cost=20)
    clock.advance(-back_ms)
    assert pacer.attempt().decision.delay_ms == 2 * S
    assert pacer.attempt().wait_ms == 100
    clock.advance(100)
    assert pacer.attempt().decision.delay_ms == 2 * S


def test_beside_another_limit_it_delays_only_what_is_admitted(
    gate: Callable[..., Gate], store: Callable[[], dict[bytes, bytes]]
) -> None:
    """R7: one call asks both; whom the other refuses takes no turn, and is told no delay."""
    mail = gate(TEN, ("client", FixedWindow("2/1h")))
    assert [mail.attempt().decision.delay_ms for _ in range(2)] == [0, 100]
    before = store()
    refused = mail.attempt().decision
    assert (refused.refused_by, refused.retry_after_ms > 0) == (("l1",), True)
    assert store() == before
    assert mail.inspect()[0].used == 2


def test_a_key_that_is_gone_when_all_has_left(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """The value is of 29 bytes; its key ends when the last message has left."""
    pacer = gate(("client", LeakyBucket("1000/1h", queue=1_999)), own_clock=True)
    for cost in (1, 1_990):
        decision = pacer.attempt(cost=cost).decision
        (key,) = client.scan_iter()
        assert client.strlen(key) == 29
        assert client.pexpiretime(key) == decision.now_ms + decision.reset_after_ms


def test_clear(gate: Callable[..., Gate], client: valkey.Valkey) -> None:
    """A clear empties the queue, says how many turns were ahead, and leaves nothing for good."""
    pacer = gate(TEN)
    assert pacer.clear().entries == client.dbsize() == 0
    pacer.attempt(cost=8)
    assert (pacer.clear().entries, pacer.clear().entries) == (8, 0)
    assert pacer.peek().reset_after_ms == 0
    assert all(client.pttl(key) > 0 for key in client.scan_iter())
    assert pacer.attempt(cost=21).decision.delay_ms == 0
