"""Keys expire while they are counted, by the store's own clock: no error, no one too many."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import pytest

from authguard import Denied, SlidingLog

from .conftest import VERA, keys_of

if TYPE_CHECKING:
    import valkey

    from .conftest import Guards

pytestmark = pytest.mark.slow

#: Long enough for two windows of a second, and the lock's, to end under load.
WORK_S = 2.5


def test_attempts_around_expiry_are_answered_and_every_key_expires(
    client: valkey.Valkey, guard_factory: Guards
) -> None:
    """B005: with a window and a lock of 1 s four threads meet verdicts alone; no key stays."""
    policy = {
        "login": {
            "limits": [
                {"name": "account", "by": ["account"], "sliding_log": "3/1s", "lockout": "1s"},
                {"name": "client", "by": ["client"], "sliding_log": "4/1s"},
            ]
        }
    }
    guard = guard_factory(policies=policy)
    overrides, log, lock, client_log = keys_of(guard, **VERA)
    assert overrides.endswith("+")
    longest_ms = {log: 1_000, lock: 2_000, client_log: 1_000}  # a lock is known for a quiet time
    ends = time.monotonic() + WORK_S
    admitted, refused, wrong = [], [], []

    def work() -> None:
        try:
            while time.monotonic() < ends:
                try:
                    admitted.append(guard.attempt("login", **VERA).decision)
                except Denied as denied:
                    refused.append(denied.decision)
                for key, life_ms in longest_ms.items():
                    left_ms = client.pttl(key)
                    if left_ms != -2 and not 0 <= left_ms <= life_ms:  # -2: expired
                        wrong.append((key, left_ms))
        except BaseException as error:  # noqa: BLE001 (whatever it is, the test must show it)
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(admitted) >= 6
    assert len(refused) > len(admitted)
    assert all(1 <= decision.retry_after_ms <= 1_000 for decision in refused)


def test_no_decision_disagrees_with_its_own_clock(guard_factory: Guards) -> None:
    """B131: thousands of hits around window ends: an entry counts exactly while now < t + W."""
    limiter = guard_factory().limiter(SlidingLog("3/1s"))
    counted: deque[int] = deque()
    ends, turns = time.monotonic() + WORK_S, 0
    while time.monotonic() < ends:
        decision = limiter.hit("key")
        now_ms = decision.now_ms
        while counted and counted[0] + 1_000 <= now_ms:
            counted.popleft()
        assert decision.allowed is (len(counted) < 3)
        if decision.allowed:
            counted.append(now_ms)
            turns += 1
        else:
            assert decision.retry_after_ms == counted[0] + 1_000 - now_ms
        assert decision.remaining == 3 - len(counted)
        assert decision.reset_after_ms == counted[-1] + 1_000 - now_ms
    assert turns >= 6
