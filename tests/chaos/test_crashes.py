"""The server dies, forgets its scripts or its data: nobody is admitted that a limit refuses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.chaos.conftest import Endure, VictimWith
    from tests.chaos.load import Storm

pytestmark = pytest.mark.slow

#: How long a server stays away.
DOWN_S = 0.5


def test_nothing_happens(victim_with: VictimWith, endure: Endure, crowd: str) -> None:
    """A96: threads, tasks or workers that were started one by one admit together what one would."""
    apart = {"preload": False} if crowd == "workers" else {}
    endure("nothing happens", victim_with(), lambda _: None, **apart)


def test_killed_and_started_again_with_all_on_disk(victim_with: VictimWith, endure: Endure) -> None:
    """B048, A86: SIGKILL costs 503s while the server is away, and not one entry."""
    server = victim_with(keeps=True)

    def fault(storm: Storm) -> None:
        server.kill()
        time.sleep(DOWN_S)
        server.start()

    endure("SIGKILL, restart; appendfsync always", server, fault)


def test_killed_and_started_again_with_nothing(victim_with: VictimWith, endure: Endure) -> None:
    """A91: a server that kept nothing counts afresh: a second life of each limit, never more."""
    server = victim_with()

    def fault(storm: Storm) -> None:
        server.kill()
        storm.lost()
        time.sleep(DOWN_S)
        server.start()

    endure("SIGKILL, restart; nothing kept", server, fault)


def test_flushed(
    victim_with: VictimWith, endure: Endure, crowd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A91: after FLUSHALL every limit counts afresh, exactly, and who looks at the log is told."""
    monkeypatch.setattr("authguard._mark.EVERY_S", 0.1)  # of this process; a site has its ten
    server = victim_with()

    def fault(storm: Storm) -> None:
        server.client.flushall()
        storm.lost()

    outcome = endure("FLUSHALL", server, fault)
    if crowd != "workers":
        assert "the store has lost data" in outcome.log


def test_scripts_flushed_all_the_time(victim_with: VictimWith, endure: Endure) -> None:
    """A88, B053: however often the scripts are lost, an attempt is charged once and answered."""
    server = victim_with()

    def fault(storm: Storm) -> None:
        for _ in range(150):
            server.client.script_flush()
            storm.more(10)

    endure("SCRIPT FLUSH, 150 times", server, fault)
