"""The store is there and silent: 503 by the deadline, and afterwards every count is right."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.chaos.conftest import Endure, RelayTo, VictimWith
    from tests.chaos.load import Storm

pytestmark = pytest.mark.slow


def test_stopped_for_five_seconds(victim_with: VictimWith, endure: Endure) -> None:
    """B057, B060, A86: a server in SIGSTOP costs 503s; what reached it late is charged once."""
    server = victim_with()

    def fault(storm: Storm) -> None:
        with server.stopped():
            time.sleep(5)

    endure("SIGSTOP for 5 s", server, fault)


def test_clients_paused(victim_with: VictimWith, endure: Endure) -> None:
    """A87: under CLIENT PAUSE nobody waits longer than the deadline, and none is let through."""
    server = victim_with()

    def fault(storm: Storm) -> None:
        server.client.execute_command("CLIENT", "PAUSE", 1_500, "ALL")
        time.sleep(1.5)

    endure("CLIENT PAUSE, 1.5 s", server, fault)


def test_half_open_connections(victim_with: VictimWith, endure: Endure, relay_to: RelayTo) -> None:
    """B057: a network that loses all and closes nothing is an outage, and over when it is over."""
    server = victim_with()
    relay = relay_to(server)

    def fault(storm: Storm) -> None:
        with relay.doing("silent"):
            time.sleep(2)

    endure("half-open sockets, 2 s", server, fault, url=relay.url)


def test_a_full_accept_queue(victim_with: VictimWith, endure: Endure, relay_to: RelayTo) -> None:
    """B057: where nobody is let in and the old connections are dead, each attempt ends in time."""
    server = victim_with()
    relay = relay_to(server)

    def fault(storm: Storm) -> None:
        with relay.stopped():
            time.sleep(2)

    endure("accept queue full, 2 s", server, fault, url=relay.url)
