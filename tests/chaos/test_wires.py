"""A network that delays, cuts and swallows replies: each attempt is charged once or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.load import UNAVAILABLE

if TYPE_CHECKING:
    from tests.chaos.conftest import Endure, RelayTo, VictimWith
    from tests.chaos.load import Storm

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("replies 30 ms late", "delay 0.03"),
        ("replies 120 ms late", "delay 0.12"),
        ("5 % of replies cut in half", "cut 5"),
        ("5 % of replies swallowed", "swallow 5"),
    ],
)
def test_replies_lost_on_the_way(
    victim_with: VictimWith, endure: Endure, relay_to: RelayTo, case: str, what: str
) -> None:
    """A87, B060: a reply that is late, half or lost is no verdict, and is never asked for again."""
    server = victim_with()
    relay = relay_to(server)

    def fault(storm: Storm) -> None:
        with relay.doing(what):
            storm.more(600)

    outcome = endure(case, server, fault, url=relay.url)
    if what != "delay 0.03":
        assert outcome.report.outcomes[UNAVAILABLE] > 0
