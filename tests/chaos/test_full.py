"""The store has no memory left, or no connection: 503, nothing by halves, and on from there."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import valkey

from tests.chaos.load import UNAVAILABLE

if TYPE_CHECKING:
    from tests.chaos.conftest import Endure, VictimWith
    from tests.chaos.load import Storm

pytestmark = pytest.mark.slow

#: How long it stays full.
FULL_S = 1.0

ROOM = 32 * 2**20


def test_out_of_memory(victim_with: VictimWith, endure: Endure) -> None:
    """B048: filled with junk under noeviction the store refuses; freed, it counts on."""
    server = victim_with(maxmemory=ROOM, maxmemory_policy="noeviction")

    def fault(storm: Storm) -> None:
        junk = 0
        ends = time.monotonic() + FULL_S
        size = 2**20
        while time.monotonic() < ends:
            try:
                server.client.set(f"junk {junk}", b"x" * size)
                junk += 1
            except valkey.exceptions.OutOfMemoryError:
                size = max(size // 2, 16)  # up to the brim
                time.sleep(0.005)
        server.client.unlink(*(f"junk {number}" for number in range(junk)))

    outcome = endure("out of memory, noeviction", server, fault)
    assert outcome.report.outcomes[UNAVAILABLE] > 0


def test_no_connection_left(victim_with: VictimWith, endure: Endure) -> None:
    """B048: at maxclients, all of them held by others, the attempts are refused; later admitted."""
    server = victim_with()
    others = 40

    def fault(storm: Storm) -> None:
        with ExitStack() as stack:
            for _ in range(others):
                held = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                held.sendall(b"PING\r\n")
                assert held.recv(7) == b"+PONG\r\n"
            server.client.config_set("maxclients", others // 2)
            own = str(server.client.client_id())
            for each in server.client.client_list():
                if each["cmd"] != "ping" and each["id"] != own:
                    server.client.client_kill_filter(_id=each["id"])
            time.sleep(FULL_S)
            server.client.config_set("maxclients", 10_000)

    outcome = endure("connection limit reached", server, fault)
    assert outcome.report.outcomes[UNAVAILABLE] > 0
