"""A wait after each admitted attempt, longer for each one in a row."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from authguard import SlidingLog
from authguard.limits import Cooldown

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Gate

S, MINUTE = 1_000, 60_000
SEND = Cooldown("30s", "60s", "120s", "240s")
TEN_OF_THE_LAST = 2_400 * S


def test_waits_climb_and_the_last_repeats(gate: Callable[..., Gate], clock: Clock) -> None:
    """B112: the n-th in a row waits the n-th wait, to the millisecond, and the last repeats."""
    send = gate(("account", SEND))
    for wait_s in (30, 60, 120, 240, 240, 240):
        admitted = send.attempt(account="vera")
        assert admitted.allowed
        (verdict,) = admitted.decision.verdicts
        assert (verdict.limit, verdict.remaining, verdict.reset_after_ms) == (1, 0, wait_s * S)
        clock.advance(wait_s * S - 1)
        assert send.attempt(account="vera").wait_ms == 1
        clock.advance(1)


@pytest.mark.parametrize("asked_after_ms", [0, 1, 12_345, 29_999])
def test_who_waits_as_told_is_admitted(
    gate: Callable[..., Gate], clock: Clock, asked_after_ms: int
) -> None:
    """Retry-After is exact: after that time the attempt is admitted, and not a moment before."""
    send = gate(("account", SEND))
    assert send.attempt(account="vera").allowed
    clock.advance(asked_after_ms)
    wait_ms = send.attempt(account="vera").wait_ms
    assert wait_ms == 30 * S - asked_after_ms
    clock.advance(wait_ms - 1)
    assert not send.peek(account="vera").allowed
    clock.advance(1)
    assert send.attempt(account="vera").allowed


def test_refused_tries_move_nothing(
    gate: Callable[..., Gate], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """B102: refused tries neither restart the wait nor lengthen the next one."""
    send = gate(("account", SEND))
    send.attempt(account="vera")
    before = store()
    for _ in range(29):
        clock.advance(S)
        assert not send.attempt(account="vera").allowed
    assert store() == before
    clock.advance(S)
    assert send.attempt(account="vera").allowed
    assert send.attempt(account="vera").wait_ms == 60 * S


def test_it_starts_over_after_ten_times_the_last_wait(
    gate: Callable[..., Gate], clock: Clock
) -> None:
    """B112: ten times the last wait after the last one the waits start over, and no sooner."""
    send = gate(("account", SEND))
    for wait_s in (30, 60):
        send.attempt(account="vera")
        clock.advance(wait_s * S)
    send.attempt(account="vera")
    clock.advance(TEN_OF_THE_LAST - 1)
    send.attempt(account="vera")
    assert send.attempt(account="vera").wait_ms == 240 * S
    clock.advance(TEN_OF_THE_LAST)
    send.attempt(account="vera")
    assert send.attempt(account="vera").wait_ms == 30 * S


def test_what_an_attempt_costs_makes_no_wait_longer(
    gate: Callable[..., Gate], clock: Clock
) -> None:
    """A costly attempt starts one wait; its cost counts in the logs beside it."""
    send = gate(("account", SEND), ("account", SlidingLog("10/1h")))
    decision = send.attempt(account="vera", cost=7).decision
    assert [verdict.remaining for verdict in decision.verdicts] == [0, 3]
    assert send.attempt(account="vera", cost=1).wait_ms == 30 * S


@pytest.mark.parametrize("succeeded", [True, False])
def test_its_own_attempt_takes_it_back_once(
    gate: Callable[..., Gate],
    clock: Clock,
    store: Callable[[], dict[bytes, bytes]],
    succeeded: bool,
) -> None:
    """A settle restores what was before its own attempt, once, and nothing of a later one's."""
    send = gate(("account", SEND))
    first = send.attempt(account="vera")
    clock.advance(30 * S)
    second = send.attempt(account="vera")
    assert (first.settle(succeeded=succeeded).entries, send.peek(account="vera").allowed) == (0, 0)
    assert second.settle(succeeded=succeeded).entries == 1
    assert send.peek(account="vera").allowed
    before = store()
    assert second.settle(succeeded=succeeded).entries == 0
    assert store() == before
    assert send.attempt(account="vera").allowed
    assert send.attempt(account="vera").wait_ms == 60 * S


def test_the_first_one_taken_back_leaves_nothing(
    gate: Callable[..., Gate], store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Where there was nothing before it, nothing is left after it."""
    send = gate(("account", SEND))
    assert send.attempt(account="vera").release().entries == 1
    assert store() == {}


def test_another_attempt_of_the_same_millisecond_stays(gate: Callable[..., Gate]) -> None:
    """A settle that comes twice takes nothing of an attempt that was admitted in between."""
    send = gate(("account", SEND))
    first = send.attempt(account="vera")
    first.release()
    assert send.attempt(account="vera").allowed
    assert first.release().entries == 0
    assert send.attempt(account="vera").wait_ms == 30 * S


@pytest.mark.parametrize("back_ms", [1, 10 * MINUTE, 10_000 * MINUTE])
def test_under_a_clock_that_steps_back(
    gate: Callable[..., Gate], clock: Clock, back_ms: int
) -> None:
    """Rule 7: it refuses for at most one wait more, told once and kept to."""
    send = gate(("account", SEND))
    send.attempt(account="vera")
    clock.advance(-back_ms)
    assert send.attempt(account="vera").wait_ms == 30 * S
    clock.advance(10 * S)
    assert send.attempt(account="vera").wait_ms == 20 * S
    clock.advance(20 * S)
    assert send.attempt(account="vera").allowed


def test_twenty_at_once(gate: Callable[..., Gate]) -> None:
    """A78: of twenty sends in one moment exactly one is admitted, every time."""
    send = gate(("account", SEND), own_clock=True)
    barrier = Barrier(20)

    def one(account: str) -> bool:
        barrier.wait()
        return send.attempt(account=account).allowed

    with ThreadPoolExecutor(20) as crowd:
        for number in range(10):
            assert list(crowd.map(one, [f"a{number}"] * 20)).count(True) == 1


def test_a_key_of_one_size_that_ends(
    gate: Callable[..., Gate], client: valkey.Valkey, clock: Clock
) -> None:
    """The value is of 18 bytes however often it is tried; it ends when the level is forgotten."""
    send = gate(("account", SEND), own_clock=True)
    now_ms = send.attempt(account="vera").decision.now_ms
    (key,) = client.scan_iter()
    assert client.pexpiretime(key) == now_ms + TEN_OF_THE_LAST
    moved = gate(("account", SEND))
    client.flushall()
    for _ in range(300):
        moved.attempt(account="vera")
        clock.advance(240 * S)
        assert client.strlen(key) == 18
        assert client.pttl(key) > 0


def test_a_key_robbed_of_its_expiry_gets_one_again(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """No key lives for ever: a refused try mends what somebody persisted."""
    send = gate(("account", SEND))
    send.attempt(account="vera")
    (key,) = client.scan_iter()
    assert client.persist(key)
    send.attempt(account="vera")
    assert client.pttl(key) > 0


def test_clear(gate: Callable[..., Gate], store: Callable[[], dict[bytes, bytes]]) -> None:
    """A clear ends the wait, and forgets how far it had climbed."""
    send = gate(("account", SEND))
    send.attempt(account="vera")
    assert send.clear(account="vera").entries == 1
    assert send.clear(account="vera").entries == 0
    assert store() == {}
