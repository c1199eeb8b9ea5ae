"""Many threads on few connections: everyone gets the own answer, nobody one too many."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied, SlidingLog, StoreUnavailable
from authguard.stores.memory import MemoryStore
from authguard.stores.valkey import ValkeyStore

from .conftest import VERA, keys_of, warm
from .wire import Wire, honest

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard.testing import EmbeddedValkey

    from .conftest import Guards

PATIENT_MS = 30_000


def _run(target: Callable[[int], None], count: int) -> None:
    """Run in as many threads at once, started together; the first error of any is raised."""
    errors: list[BaseException] = []
    together = threading.Barrier(count)

    def guarded(number: int) -> None:
        try:
            together.wait()
            target(number)
        except BaseException as error:  # noqa: BLE001 (raised again below)
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_fifty_threads_on_two_connections_get_their_own_answers(
    valkey_server: EmbeddedValkey, guard_factory: Guards
) -> None:
    """B059: a short pool makes callers wait, never fail, and mixes up no replies."""
    seen: dict[int, list[int]] = {}
    with Wire(honest, valkey_server.port) as wire:
        store = ValkeyStore(wire.url, deadline_ms=PATIENT_MS, connections=2)
        guard = guard_factory(store=store)

        def ask(number: int) -> None:
            who = {"account": f"user{number}", "client": f"192.0.{number}.1"}
            for _ in range(1 + number % 5):
                decision = guard.attempt("login", **who).decision
                seen.setdefault(number, []).append(decision.verdicts[0].remaining)

        _run(ask, 50)
        assert len(wire.talks) <= 2
    assert seen == {number: [4 - turn for turn in range(1 + number % 5)] for number in range(50)}


@pytest.mark.parametrize("store", ["valkey", pytest.param("memory", marks=pytest.mark.slow)])
def test_eight_threads_count_exactly(guard_factory: Guards, store: str) -> None:
    """B008: eight threads of 250 hits on one log of 100,000 are 2,000 entries, in either store."""
    given = {"store": MemoryStore(lambda: 1_800_000_000_000)} if store == "memory" else {}
    limiter = guard_factory(**given).limiter(SlidingLog("100000/1h"))

    def hit(_: int) -> None:
        for _ in range(250):
            assert limiter.hit("key").allowed

    _run(hit, 8)
    assert limiter.peek("key").remaining == 98_000


def test_fifty_parallel_guesses_are_five(valkey_url: str, guard_factory: Guards) -> None:
    """Of fifty attempts at one moment on one account exactly five are admitted."""
    store = ValkeyStore(valkey_url, deadline_ms=PATIENT_MS, connections=2)
    guard = guard_factory(store=store)
    admitted = []

    def guess(number: int) -> None:
        with suppress(Denied):
            admitted.append(guard.attempt("login", **VERA))

    _run(guess, 50)
    assert len(admitted) == 5


def test_a_waiting_thread_gets_the_place_of_one_that_failed(
    own_valkey: EmbeddedValkey, own_client: valkey.Valkey, guard_factory: Guards
) -> None:
    """B061: a failed attempt gives its place in the pool back, however often it fails."""
    store = ValkeyStore(own_valkey.url, deadline_ms=PATIENT_MS, connections=1)
    guard = guard_factory(store=store)
    warm(guard)
    log = keys_of(guard, **VERA)[0]
    own_client.rpush(log, "no log")
    for _ in range(20):
        try:
            guard.attempt("login", **VERA)
        except StoreUnavailable as error:
            assert error.reason == "error reply"  # noqa: PT017 (each of them)
    own_client.delete(log)
    assert guard.attempt("login", **VERA).decision.allowed


def test_closing_a_guard_in_use_breaks_no_decision(guard_factory: Guards) -> None:
    """A close() beside running decisions lets them end, and later ones open new connections."""
    guard = guard_factory()
    working = threading.Event()
    working.set()
    answers: list[bool] = []

    def work(number: int) -> None:
        who = {"account": f"user{number}", "client": f"192.0.2.{number}"}
        while working.is_set():
            answers.append(guard.peek("login", **who).allowed)

    def close() -> None:
        while len(answers) < 300:
            guard.close()
            time.sleep(0.0005)
        working.clear()

    _run(lambda number: work(number) if number else close(), 6)
    assert all(answers)
    guard.close()
    pool = guard._engine.store._pool
    assert pool.lent == 0
    assert pool._idle == []


def test_what_is_dropped_as_it_is_taken_is_not_kept(valkey_url: str) -> None:
    """A guard that is closed the moment a thread takes a connection leaves none open after it."""
    store = ValkeyStore(valkey_url, deadline_ms=PATIENT_MS)
    assert store.ask("PING") == b"PONG"
    pool = store._pool

    class Closing(list[Any]):
        """Idle connections; another thread closes the store as one is taken."""

        def pop(self, *at: Any) -> Any:
            connection = super().pop(*at)
            closing = threading.Thread(target=store.close)
            closing.start()
            closing.join()
            return connection

    pool._idle = Closing(pool._idle)
    assert store.ask("PING") == b"PONG"
    assert pool._idle == []
