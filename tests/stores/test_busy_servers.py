"""A server that is busy with an endless script or its own loading: refused, not waited for."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
import valkey

from authguard.testing import embedded_valkey

from .conftest import VERA, warm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authguard.testing import EmbeddedValkey

    from .conftest import Guards, Outage

pytestmark = pytest.mark.slow

#: Far beyond any answer here, so that what comes is the server's own word.
DEADLINE_MS = 3_000


@contextmanager
def busy(client: valkey.Valkey, command: str, *args: str) -> Iterator[None]:
    """Run a command that keeps the server busy beside the block; it may end in an error."""
    other = valkey.Valkey(port=client.get_connection_kwargs()["port"], socket_timeout=30)

    def run() -> None:
        with suppress(valkey.ResponseError):
            other.execute_command(command, *args)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        while answers(client):
            pass
        yield
    finally:
        with suppress(valkey.ResponseError):
            client.script_kill()
        thread.join(30)
        other.connection_pool.disconnect()


def answers(client: valkey.Valkey) -> bool:
    """Tell whether the server does any work now."""
    try:
        return client.get("anything") is None
    except (valkey.ResponseError, valkey.BusyLoadingError):
        return False


def test_a_busy_server_refuses(
    own_valkey: EmbeddedValkey, own_client: valkey.Valkey, guard_factory: Guards, outage: Outage
) -> None:
    """A87: while somebody's endless script runs, the attempt is refused; after it, admitted."""
    guard = guard_factory(store=own_valkey.url, deadline_ms=DEADLINE_MS)
    warm(guard)
    own_client.config_set("busy-reply-threshold", 10)
    with busy(own_client, "EVAL", "while true do end", "0"):
        outage(guard, "BUSY: an endless script runs", "error reply")
    assert guard.attempt("login", **VERA).decision.allowed


def test_a_loading_server_refuses(guard_factory: Guards, outage: Outage) -> None:
    """B059: while the server reads its data the attempt is refused; after it, counted on."""
    debugging = {
        "enable-debug-command": "yes",
        "key-load-delay": 10_000,
        "loading-process-events-interval-bytes": 1024,
    }
    with (
        embedded_valkey(**debugging) as server,
        valkey.Valkey(port=server.port, socket_timeout=10) as client,
    ):
        guard = guard_factory(store=server.url, deadline_ms=DEADLINE_MS)
        guard.attempt("login", **VERA)
        client.mset({f"filler {number}": "x" * 20 for number in range(100)})
        with busy(client, "DEBUG", "RELOAD"):
            outage(guard, "LOADING", "loading", "timeout")
        assert guard.attempt("login", **VERA).decision.verdicts[0].remaining == 3
        client.connection_pool.disconnect()
