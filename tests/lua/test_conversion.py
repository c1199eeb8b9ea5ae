"""A breaker on messages with codes: who pumps messages never enters the codes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from authguard import SlidingLog
from authguard.limits import Conversion

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Gate

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
RANGE = ("number_range", Conversion("10/50", lockout="24h", life="10m"))
TWO_OF_FIVE = ("number_range", Conversion("2/5", lockout="24h", life="10m"))
KNOWN = {"number_range": "+4479460"}


def test_nobody_enters_a_code(gate: Callable[..., Gate], clock: Clock) -> None:
    """A80: after 50 codes that nobody entered the next send is the last for 24 hours."""
    sends = gate(RANGE)
    for _ in range(50):
        assert sends.attempt(**KNOWN).allowed
        clock.advance(MINUTE)
    clock.advance(10 * MINUTE)
    (last,) = sends.attempt(**KNOWN).decision.verdicts
    assert (last.refuses, last.lock_set, last.reset_after_ms) == (False, True, DAY)
    clock.advance(HOUR)
    refused = sends.attempt(**KNOWN)
    (verdict,) = refused.decision.verdicts
    assert (verdict.locked, verdict.retry_after_ms) == (True, 23 * HOUR)
    assert sends.attempt(number_range="+4479461").allowed
    clock.advance(23 * HOUR - 1)
    assert sends.attempt(**KNOWN).wait_ms == 1
    clock.advance(1)
    for _ in range(50):
        assert sends.attempt(**KNOWN).allowed


@pytest.mark.parametrize(("entered", "locks"), [(9, True), (10, False), (50, False)])
def test_ten_of_fifty(gate: Callable[..., Gate], clock: Clock, entered: int, locks: bool) -> None:
    """A80: with ten of the last fifty entered it stays open, with nine it locks."""
    sends = gate(RANGE)
    for number in range(50):
        sent = sends.attempt(**KNOWN)
        clock.advance(MINUTE)
        if number >= 50 - entered:
            assert sent.succeed().entries == 1
    clock.advance(10 * MINUTE)
    (verdict,) = sends.attempt(**KNOWN).decision.verdicts
    assert verdict.lock_set is locks


def test_a_code_is_good_until_its_life_is_over(gate: Callable[..., Gate], clock: Clock) -> None:
    """A code counts as entered until its life's last millisecond, and after it as not."""
    sends = gate(TWO_OF_FIVE)
    in_time, late = sends.attempt(**KNOWN), sends.attempt(**KNOWN)
    clock.advance(10 * MINUTE - 1)
    assert in_time.succeed().entries == 1
    clock.advance(1)
    assert late.succeed().entries == 0
    (usage,) = sends.inspect(**KNOWN)
    assert (usage.used, usage.limit) == (2, 5)


def test_only_finished_codes_are_judged(gate: Callable[..., Gate], clock: Clock) -> None:
    """Codes under way are neither good nor bad; the last five finished ones are looked at."""
    sends = gate(TWO_OF_FIVE)
    for _ in range(5):
        sends.attempt(**KNOWN)
    assert sends.attempt(**KNOWN).allowed
    clock.advance(10 * MINUTE)  # five unentered
    pumped = sends.peek(**KNOWN)
    assert pumped.allowed
    assert sends.attempt(**KNOWN).decision.verdicts[0].lock_set


def test_a_message_that_was_never_sent_counts_for_nothing(
    gate: Callable[..., Gate], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """A release drops its code, once."""
    sends = gate(TWO_OF_FIVE)
    sent = sends.attempt(**KNOWN)
    assert (sent.release().entries, sent.release().entries, store()) == (1, 0, {})


def test_a_code_is_entered_once(
    gate: Callable[..., Gate], store: Callable[[], dict[bytes, bytes]]
) -> None:
    """A second settle of one code finds nothing and changes nothing."""
    sends = gate(TWO_OF_FIVE)
    sent = sends.attempt(**KNOWN)
    assert sent.succeed().entries == 1
    before = store()
    assert (sent.succeed().entries, sent.release().entries, store()) == (0, 0, before)


def test_its_size_is_bounded(gate: Callable[..., Gate], client: valkey.Valkey) -> None:
    """However many are sent at once, 50 pending codes are followed, and the rest are admitted."""
    sends = gate(RANGE)
    tries = [sends.attempt(**KNOWN) for _ in range(200)]
    assert all(tried.allowed for tried in tries)
    (key,) = client.scan_iter()
    assert client.strlen(key) == 19 + 50 * 10
    assert [tried.succeed().entries for tried in tries].count(1) == 50
    assert client.strlen(key) == 19 + 50


def test_a_refused_message_leaves_no_trace(
    gate: Callable[..., Gate], store: Callable[[], dict[bytes, bytes]]
) -> None:
    """All or none: a send that another limit refuses is no code."""
    sends = gate(TWO_OF_FIVE, ("number_range", SlidingLog("1/1h")))
    sends.attempt(**KNOWN)
    before = store()
    assert not sends.attempt(**KNOWN).allowed
    assert store() == before


def test_it_is_forgotten_when_nothing_is_sent(
    gate: Callable[..., Gate], clock: Clock, client: valkey.Valkey
) -> None:
    """A sample older than a lockout and a life says nothing: its key ends then."""
    own = gate(TWO_OF_FIVE, own_clock=True)
    now_ms = own.attempt(**KNOWN).decision.now_ms
    (key,) = client.scan_iter()
    assert client.pexpiretime(key) == now_ms + DAY + 10 * MINUTE
    client.flushall()
    sends = gate(TWO_OF_FIVE)
    for _ in range(5):
        sends.attempt(**KNOWN)
    clock.advance(DAY + 10 * MINUTE - 1)
    assert sends.inspect(**KNOWN)[0].used == 5
    clock.advance(1)
    assert sends.inspect(**KNOWN)[0].used == 0


@pytest.mark.parametrize("back_ms", [1, 10 * MINUTE, 10_000 * MINUTE])
def test_a_lock_under_a_clock_that_steps_back(
    gate: Callable[..., Gate], clock: Clock, back_ms: int
) -> None:
    """Rule 7: a lock refuses for at most one lockout more, told once and kept to."""
    sends = gate(TWO_OF_FIVE)
    for _ in range(5):
        sends.attempt(**KNOWN)
    clock.advance(10 * MINUTE)
    assert sends.attempt(**KNOWN).decision.verdicts[0].lock_set
    clock.advance(-back_ms)
    assert sends.attempt(**KNOWN).wait_ms == DAY
    clock.advance(HOUR)
    assert sends.attempt(**KNOWN).wait_ms == 23 * HOUR
    clock.advance(23 * HOUR)
    assert sends.attempt(**KNOWN).allowed


def test_one_send_sets_the_lock(gate: Callable[..., Gate], clock: Clock) -> None:
    """Of twenty sends in one moment on a pumped range, one is admitted: it sets the lock."""
    sends = gate(TWO_OF_FIVE)
    barrier = Barrier(20)

    def one(_: int) -> tuple[bool, bool]:
        barrier.wait()
        decision = sends.attempt(**KNOWN).decision
        return decision.allowed, decision.verdicts[0].lock_set

    with ThreadPoolExecutor(20) as crowd:
        for _ in range(5):
            for _ in range(5):
                sends.attempt(**KNOWN)
            clock.advance(10 * MINUTE)
            answers = list(crowd.map(one, range(20)))
            assert (answers.count((True, True)), answers.count((False, False))) == (1, 19)
            clock.advance(DAY)


def test_clear(
    gate: Callable[..., Gate], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """A clear ends the lock and empties the sample; the next send is the first of a new one."""
    sends = gate(TWO_OF_FIVE)
    for _ in range(5):
        sends.attempt(**KNOWN)
    assert sends.clear(**KNOWN).entries == 5
    for _ in range(5):
        sends.attempt(**KNOWN)
    clock.advance(10 * MINUTE)
    sends.attempt(**KNOWN)
    (usage,) = sends.inspect(**KNOWN)
    assert (usage.locked_until_ms, usage.lock_set_at_ms) == (clock.now_ms + DAY, clock.now_ms)
    cleared = sends.clear(**KNOWN)
    assert (cleared.entries, cleared.locks, store()) == (0, 1, {})
    assert sends.attempt(**KNOWN).allowed


def test_a_key_robbed_of_its_expiry_gets_one_again(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """No key lives for ever: a refused try mends what somebody persisted."""
    sends = gate(TWO_OF_FIVE, ("number_range", SlidingLog("1/1h")))
    sends.attempt(**KNOWN)
    for key in client.scan_iter():
        client.persist(key)
    sends.attempt(**KNOWN)
    assert all(client.pttl(key) > 0 for key in client.scan_iter())
