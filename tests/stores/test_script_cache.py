"""The server's script cache is emptied again and again: every charge still counts once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from authguard import Denied

from .conftest import VERA

if TYPE_CHECKING:
    import valkey

    from authguard import Guard

    from .conftest import Guards

THREADS, EACH = 4, 150


def test_a_flushed_script_cache_loses_no_count(
    guard_factory: Guards, client: valkey.Valkey
) -> None:
    """B053, A88: three attempts, SCRIPT FLUSH, two more: five are counted, the sixth is refused."""
    guard = guard_factory()
    for number in range(5):
        if number == 3:
            client.script_flush()
        assert guard.attempt("login", **VERA).decision.verdicts[0].remaining == 4 - number
    client.script_flush()
    with pytest.raises(Denied):
        guard.attempt("login", **VERA)


def test_flushing_in_a_loop_under_load_keeps_the_count_exact(
    guard_factory: Guards, client: valkey.Valkey
) -> None:
    """B053: four threads work while the cache is flushed in a loop: no error, an exact count."""
    total = THREADS * EACH
    policy = {
        "login": {
            "limits": [
                {"name": "account", "by": ["account"], "sliding_log": f"{2 * total}/1h"},
                {"name": "client", "by": ["client"], "sliding_log": f"{2 * total}/1h"},
            ]
        }
    }
    guard: Guard = guard_factory(policies=policy)
    errors: list[BaseException] = []
    working = threading.Event()
    working.set()

    def work() -> None:
        try:
            for _ in range(EACH):
                guard.attempt("login", **VERA)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the test must show it)
            errors.append(error)

    def flush() -> None:
        while working.is_set():
            client.script_flush()

    flusher = threading.Thread(target=flush)
    workers = [threading.Thread(target=work) for _ in range(THREADS)]
    client.config_resetstat()
    for thread in (flusher, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    working.clear()
    flusher.join()
    assert errors == []
    assert [verdict.remaining for verdict in guard.peek("login", **VERA).verdicts] == [total] * 2
    assert client.info("commandstats")["cmdstat_eval"]["calls"] > 0
