"""After a fail-over the next attempt talks to the new primary; no restart, no stale pool."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
import valkey

from authguard import StoreUnavailable
from authguard.testing import embedded_valkey

from .conftest import SANE_S, VERA, warm
from .wire import Wire, honest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard import Guard

    from .conftest import Guards, NoteTime, Outage
    from .wire import Step, Talk


@pytest.fixture
def pair() -> Iterator[tuple[valkey.Valkey, valkey.Valkey]]:
    """Run a primary with a replica in step; give a plain client on each."""
    fast = {"repl-diskless-sync-delay": 0}
    with (
        embedded_valkey(**fast) as one,
        embedded_valkey(**fast) as other,
        valkey.Valkey(port=one.port, socket_timeout=10) as primary,
        valkey.Valkey(port=other.port, socket_timeout=10) as replica,
    ):
        replica.replicaof("127.0.0.1", one.port)
        _wait_until(lambda: replica.info("replication").get("master_link_status") == "up")
        yield primary, replica
        for client in (primary, replica):
            client.connection_pool.disconnect()


def _wait_until(true: Callable[[], bool]) -> None:
    last = time.monotonic() + 10 * SANE_S
    while not true():
        assert time.monotonic() < last
        time.sleep(0.02)


def _port(client: valkey.Valkey) -> int:
    return int(client.get_connection_kwargs()["port"])


def _all_at_once(guard: Guard, count: int) -> list[str]:
    """Attempt in as many threads; give the reasons of those that failed."""
    failed: list[str] = []

    def ask(number: int) -> None:
        try:
            guard.attempt("login", account=f"user{number}", client=f"192.0.2.{number}")
        except StoreUnavailable as error:
            failed.append(error.reason)

    threads = [threading.Thread(target=ask, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def test_a_replica_refuses(
    pair: tuple[valkey.Valkey, valkey.Valkey], guard_factory: Guards, outage: Outage
) -> None:
    """B054: a node that may not write gives no verdict, and none of its data changes."""
    _, replica = pair
    guard = guard_factory(store=f"valkey://127.0.0.1:{_port(replica)}", deadline_ms=3_000)
    outage(guard, "READONLY: a replica", "read only")
    assert replica.dbsize() == 0


def test_after_a_failover_one_refusal_clears_the_whole_pool(
    pair: tuple[valkey.Valkey, valkey.Valkey], guard_factory: Guards, note_time: NoteTime
) -> None:
    """B054: of eight connections to the demoted node one refuses; then all work, counts intact."""
    primary, replica = pair

    def unhurried(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield 0.1
        yield from honest(talk, command)

    with Wire(honest, _port(primary)) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=5_000)
        warm(guard)
        guard.attempt("login", **VERA)
        wire.answer = unhurried  # so that each of the eight needs a connection of its own
        assert _all_at_once(guard, 8) == []
        assert len(wire.talks) == 8
        wire.answer = honest
        _wait_until(
            lambda: (
                primary.info("replication")["master_repl_offset"]
                == replica.info("replication")["slave_repl_offset"]
            )
        )

        begun = time.monotonic()
        replica.replicaof("NO", "ONE")
        primary.replicaof("127.0.0.1", _port(replica))
        wire.upstream_port = _port(replica)
        reasons = []
        while True:
            try:
                decision = guard.attempt("login", **VERA).decision
                break
            except StoreUnavailable as error:
                reasons.append(error.reason)
                assert time.monotonic() - begun < SANE_S
        note_time(
            f"fail-over: first admission, {len(reasons)} refused before",
            5.0,
            time.monotonic() - begun,
            "admitted",
        )
        assert reasons == ["read only"]
        assert decision.verdicts[0].remaining == 3
        wire.answer = unhurried
        assert _all_at_once(guard, 8) == []
