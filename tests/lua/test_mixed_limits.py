"""Limits of all algorithms in one attempt: charged together or not at all, and told exactly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
import valkey as valkey_client

from authguard import Cleared, SlidingLog, StoreUnavailable
from authguard.limits import Conversion, Cooldown, Distinct, FixedWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Gate

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
WIDE = {
    "sliding_log": ("client", SlidingLog("9/1h", lockout="1h")),
    "cooldown": ("account", Cooldown("1s")),
    "fixed_window": ("global", FixedWindow("9/1h")),
    "distinct": ("client", Distinct("account", "9/1h")),
    "conversion": ("client", Conversion("1/9", lockout="1h")),
}
NARROW = {
    "sliding_log": ("client", SlidingLog("1/1h")),
    "cooldown": ("client", Cooldown("1h")),
    "fixed_window": ("global", FixedWindow("1/1h")),
    "distinct": ("client", Distinct("account", "1/1h")),
}
SIZES = {"cooldown": 18, "fixed_window": 17, "distinct": 22, "conversion": 29}


@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("secrets", [1, 2])
def test_a_refused_attempt_leaves_no_trace(
    gate: Callable[..., Gate],
    clock: Clock,
    store: Callable[[], dict[bytes, bytes]],
    narrow: str,
    secrets: int,
) -> None:
    """Rule 3: whichever algorithm refuses, no other is charged."""
    limits = {**WIDE, narrow: NARROW[narrow]}
    login = gate(*limits.values(), secrets=secrets)
    assert login.attempt(account="a").allowed
    clock.advance(2_000)
    before = store()
    refused = login.attempt(account="b").decision
    assert refused.refused_by == (f"l{list(limits).index(narrow)}",)
    assert store() == before


def test_the_longest_wait_is_told(gate: Callable[..., Gate], clock: Clock) -> None:
    """The wait is the longest of all that refuse; who waits it is admitted, and not before."""
    login = gate(*NARROW.values(), ("account", Cooldown("90m")))
    clock.advance(HOUR - clock.now_ms % HOUR)
    assert login.attempt(account="a").allowed
    clock.advance(MINUTE)
    refused = login.attempt(account="a")
    waits = [verdict.retry_after_ms for verdict in refused.decision.verdicts]
    assert waits == [59 * MINUTE, 59 * MINUTE, 59 * MINUTE, 0, 89 * MINUTE]
    assert refused.wait_ms == 89 * MINUTE
    clock.advance(89 * MINUTE - 1)
    assert login.attempt(account="a").wait_ms == 1
    clock.advance(1)
    assert login.attempt(account="a").allowed


@pytest.mark.parametrize("secrets", [1, 2])
def test_a_settle_takes_everything_back(
    gate: Callable[..., Gate], store: Callable[[], dict[bytes, bytes]], secrets: int
) -> None:
    """A release empties what its attempt alone had filled, under every secret."""
    login = gate(*WIDE.values(), secrets=secrets)
    tried = login.attempt(account="a")
    assert len(store()) == 5 * secrets
    assert tried.release() == Cleared(entries=5, locks=0)
    assert store() == {}


def test_under_two_secrets_either_refuses(
    gate: Callable[..., Gate], clock: Clock, client: valkey.Valkey
) -> None:
    """While a secret is changed, a limit that is full under the old one refuses still."""
    old = gate(*NARROW.values())
    assert old.attempt(account="a").allowed
    both = gate(*NARROW.values(), secrets=2)
    refused = both.attempt(account="b").decision
    assert refused.refused_by == ("l0", "l1", "l2", "l3")
    assert client.dbsize() == 4


@pytest.mark.parametrize("algorithm", SIZES)
def test_a_malformed_value_is_no_verdict(
    gate: Callable[..., Gate], client: valkey.Valkey, algorithm: str
) -> None:
    """What is not of its algorithm's form ends the script before anything is written."""
    login = gate(*WIDE.values())
    login.attempt(account="a")
    keys = {client.strlen(key): key for key in client.scan_iter()}
    client.append(keys[SIZES[algorithm]], b"x")
    before = {key: client.get(key) for key in client.scan_iter()}
    for ask in (login.attempt, login.peek, login.clear):
        with pytest.raises(StoreUnavailable) as caught:
            ask(account="a")
        cause = caught.value.__cause__
        assert isinstance(cause, valkey_client.ResponseError)
        assert "authguard: malformed" in str(cause)
    assert {key: client.get(key) for key in client.scan_iter()} == before


def test_a_wrong_type_is_no_verdict(gate: Callable[..., Gate], client: valkey.Valkey) -> None:
    """A key that holds no string ends the script before anything is written."""
    login = gate(*WIDE.values())
    login.attempt(account="a")
    for key in sorted(client.scan_iter()):
        held = client.get(key)
        client.delete(key)
        client.lpush(key, "x")
        with pytest.raises(StoreUnavailable):
            login.attempt(account="a")
        client.delete(key)
        client.set(key, held, px=HOUR)


def test_twenty_at_once(gate: Callable[..., Gate], clock: Clock) -> None:
    """Of twenty in one moment as many are admitted as the narrowest limit has places."""
    limits = (
        ("client", SlidingLog("5/1h")),
        ("global", FixedWindow("4/1h")),
        ("client", Distinct("account", "3/1h")),
    )
    login = gate(*limits)
    barrier = Barrier(20)

    def one(number: int) -> bool:
        barrier.wait()
        return login.attempt(account=f"a{number}").allowed

    with ThreadPoolExecutor(20) as crowd:
        for _ in range(10):
            assert list(crowd.map(one, range(20))).count(True) == 3
            assert [usage.used for usage in login.inspect(account="a")] == [3, 3, 3]
            clock.advance(2 * HOUR)


def test_recover_lifts_what_keeps_the_owner_out(gate: Callable[..., Gate], clock: Clock) -> None:
    """The owner's recovery empties short limits, and long ones that are full; others go on."""
    login = gate(
        ("account", SlidingLog("3/1h", lockout="24h")),
        ("account", SlidingLog("3/24h")),
        ("account", SlidingLog("9/30d")),
        ("account", Cooldown("1s", "2s", "2h")),
        ("account", SlidingLog("9/1h")),
        ("account", SlidingLog("9/3601s")),
    )
    for _ in range(3):
        assert login.attempt(account="a").allowed
        clock.advance(MINUTE)
    assert len(login.peek(account="a").refused_by) == 3
    assert login.recover(account="a") == Cleared(entries=3 + 3 + 1 + 3, locks=1)
    assert [usage.used for usage in login.inspect(account="a")] == [0, 0, 3, 0, 0, 3]
    assert login.recover(account="a") == Cleared(entries=0, locks=0)


def test_how_everything_stands(gate: Callable[..., Gate], clock: Clock) -> None:
    """Inspect tells places, times and locks of every algorithm, and writes nothing."""
    clock.advance(DAY - clock.now_ms % DAY)
    login = gate(
        ("account", SlidingLog("2/1h", lockout=["1h", "2h"])),
        ("account", Cooldown("30s", "60s")),
        ("global", FixedWindow("9/24h")),
        ("client", Distinct("account", "9/1h")),
    )
    start_ms = clock.now_ms
    login.attempt(account="a")
    clock.advance(MINUTE)
    login.attempt(account="a")
    clock.advance(1_000)
    log, cooldown, window, distinct = login.inspect(account="a")
    assert (log.name, log.by, log.algorithm, log.limit) == ("l0", ("account",), "sliding_log", 2)
    assert (log.used, log.newest_ms, log.level) == (2, start_ms + MINUTE, 1)
    assert (log.locked_until_ms, log.lock_set_at_ms) == (
        start_ms + MINUTE + HOUR,
        start_ms + MINUTE,
    )
    assert log.frees_after_ms == HOUR - 1_000
    assert (cooldown.used, cooldown.level, cooldown.frees_after_ms) == (1, 2, 59_000)
    assert (window.used, window.newest_ms, window.frees_after_ms) == (2, None, DAY - 61_000)
    assert (distinct.used, distinct.newest_ms) == (1, start_ms + MINUTE)
    assert not any(usage.endless for usage in (log, cooldown, window, distinct))
