"""Rule 8: a key lives exactly as long as its newest entry, or its lock, can matter."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Door

A, B = "203.0.113.9", "198.51.100.7"
MINUTE, DAY = 60_000, 86_400_000


@pytest.fixture
def expiries(client: valkey.Valkey) -> Callable[[], dict[str, list[int]]]:
    """Read when the logs and the locks expire, in milliseconds since the epoch."""

    def read() -> dict[str, list[int]]:
        keys = list(client.scan_iter())
        return {
            "logs": sorted(client.pexpiretime(key) for key in keys if not key.endswith(b"!")),
            "locks": sorted(client.pexpiretime(key) for key in keys if key.endswith(b"!")),
        }

    return read


def test_a_log_lives_for_its_window(
    door: Callable[..., Door], expiries: Callable[[], dict[str, list[int]]]
) -> None:
    """Rule 8: each log expires its own window after its newest entry, to the millisecond."""
    login = door(("account", "5/1m"), ("day", "9/24h"), ("month", "9/30d"))
    for _ in range(3):
        at_ms = login.fail().now_ms
        assert expiries()["logs"] == [at_ms + MINUTE, at_ms + DAY, at_ms + 30 * DAY]
        time.sleep(0.003)


def test_a_refusal_does_not_lengthen_it(
    door: Callable[..., Door], expiries: Callable[[], dict[str, list[int]]]
) -> None:
    """B105: refused tries move no expiry, neither the log's nor the lock's."""
    login = door(("account", "2/15m", {"lockout": "1m"}), ("client", "9/15m"))
    login.fail(2)
    before = expiries()
    for _ in range(5):
        time.sleep(0.002)
        login.refusal()
    assert expiries() == before


@pytest.mark.parametrize(
    ("lockout", "log_ms", "quiet_ms"),
    [("1m", MINUTE, 15 * MINUTE), ("1h", 15 * MINUTE, 60 * MINUTE)],
    ids=["shorter than the window", "longer"],
)
def test_a_lock_lives_until_its_level_is_forgotten(
    door: Callable[..., Door],
    expiries: Callable[[], dict[str, list[int]]],
    lockout: str,
    log_ms: int,
    quiet_ms: int,
) -> None:
    """Rule 8: a full log goes with its lock or its window; the lock after its quiet time."""
    login = door(("account", "2/15m", {"lockout": lockout}))
    filling = login.fail(2)
    at_ms, lock_ms = filling.now_ms, filling.reset_after_ms
    assert expiries() == {"logs": [at_ms + log_ms], "locks": [at_ms + lock_ms + quiet_ms]}


def test_it_follows_the_newest_that_is_left(
    door: Callable[..., Door], expiries: Callable[[], dict[str, list[int]]]
) -> None:
    """Rule 8: when the newest entry is given back, the log lives for the one before it."""
    login = door(("account", "5/15m"))
    older_ms = login.fail(client=B).now_ms
    time.sleep(0.01)
    newer = login.attempt(client=A)
    assert expiries()["logs"] == [newer.decision.now_ms + 15 * MINUTE]
    newer.succeed()
    assert expiries()["logs"] == [older_ms + 15 * MINUTE]


def test_lifting_a_short_lock_gives_the_log_its_window_back(
    door: Callable[..., Door], expiries: Callable[[], dict[str, list[int]]]
) -> None:
    """Rule 8: others' entries, which the lock's end would have taken, count to their own end."""
    login = door(("account", "2/15m", {"lockout": "1m"}))
    older_ms = login.fail(client=B).now_ms
    time.sleep(0.005)
    login.sign_in(client=A)
    assert expiries() == {"logs": [older_ms + 15 * MINUTE], "locks": []}


def test_nothing_stays_of_a_success(door: Callable[..., Door], client: valkey.Valkey) -> None:
    """Rule 8: an empty log is no key, and a lock that was lifted is none either."""
    login = door(("account", "1/15m", {"lockout": "15m"}), ("client", "9/15m"))
    login.sign_in()
    assert client.dbsize() == 0
    login.fail()
    login.guard.clear("login", account="vera")
    login.guard.clear("login", client=A)
    assert [key.endswith(b"!") for key in client.scan_iter()] == [True]


def test_the_store_forgets_by_itself(door: Callable[..., Door], client: valkey.Valkey) -> None:
    """Rule 8: one window and quiet time after the last try there is no key left."""
    login = door(("account", "1/1s", {"lockout": "1s"}), ("client", "9/1s"))
    login.fail()
    time.sleep(1.02)
    assert [key.endswith(b"!") for key in client.scan_iter()] == [True]
    time.sleep(1.02)
    assert list(client.scan_iter()) == []


@pytest.mark.parametrize("next_call", ["admitted", "refused"])
def test_a_key_without_expiry_gets_one(
    door: Callable[..., Door], client: valkey.Valkey, next_call: str
) -> None:
    """B108: PERSIST any key; the next call, admitted or refused, gives it an expiry again."""
    login = door(("account", "4/1s", {"lockout": "1s"}), ("client", "20/1s"))
    login.fail(4)
    time.sleep(login.verdict().retry_after_ms / 1000)
    login.fail(2 if next_call == "admitted" else 4)
    keys = list(client.scan_iter())
    assert sorted(key.endswith(b"!") for key in keys) == [False, False, True]
    for key in keys:
        assert client.persist(key)
    if next_call == "admitted":
        login.fail()
    else:
        login.refusal()
    for key in keys:
        assert 0 < client.pttl(key) <= 3000
    time.sleep(login.verdict().reset_after_ms / 1000)
    login.fail()


def test_a_key_planted_for_ever_blocks_for_one_period(
    door: Callable[..., Door], client: valkey.Valkey, clock: Clock
) -> None:
    """B108: a lock and a log planted far in the future refuse for one lockout and one window."""
    login = door(("account", "3/15m", {"lockout": "20m"}), ("client", "3/15m"), clock=clock)
    clock.advance(5000 * MINUTE)
    login.fail(3)
    for key in client.scan_iter():
        client.persist(key)
    clock.advance(-5000 * MINUTE)
    assert login.refusal().retry_after_ms == 20 * MINUTE
    assert all(client.pttl(key) > 0 for key in client.scan_iter())
    clock.advance(20 * MINUTE)
    login.fail(3)


def test_an_entry_never_counts_longer_than_its_window(
    door: Callable[..., Door], clock: Clock
) -> None:
    """B109: a try each 5 ms, limit 10 in 1 s: ten admitted in each of 20 windows, no fewer."""
    login = door(("account", "10/1s"), clock=clock)
    for _ in range(20):
        admitted = 0
        for _ in range(200):
            if login.guard.peek("login", account="vera", client=A).allowed:
                login.fail()
                admitted += 1
            clock.advance(5)
        assert admitted == 10


def test_an_entry_never_counts_longer_by_the_clock_of_the_store(
    door: Callable[..., Door], client: valkey.Valkey
) -> None:
    """B109: hammered without a pause, each wait and each expiry is at most one window."""
    login = door(("account", "20/1s"))
    limiter_ms, ends_s = [], time.monotonic() + 2.2
    while time.monotonic() < ends_s:
        decision = login.guard.peek("login", account="vera", client=A)
        if decision.allowed:
            limiter_ms.append(login.fail().now_ms)
        assert decision.reset_after_ms <= 1000
        assert all(client.pttl(key) <= 1000 for key in client.scan_iter())
    assert len(limiter_ms) >= 40
    for earlier, later in zip(limiter_ms, limiter_ms[20:], strict=False):
        assert later - earlier >= 1000
