"""The store is away when a success is to be told, and where an outage lets an action through."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.chaos.load import person

if TYPE_CHECKING:
    from tests.chaos.conftest import Endure, Fault, Victim, VictimWith
    from tests.chaos.ledger import Person
    from tests.chaos.load import Storm

pytestmark = pytest.mark.slow

#: How long a server stays away.
DOWN_S = 0.5


def restarts(server: Victim, times: int) -> Fault:
    """Kill a server and start it again, so many times."""

    def fault(storm: Storm) -> None:
        for _ in range(times):
            server.kill()
            time.sleep(DOWN_S)
            server.start()
            storm.more(200)

    return fault


def half_of_them_right(number: int) -> Person:
    """Send many whose credential is right, so that some are being checked at any moment."""
    return person(number)._replace(right=number % 2 == 0)


def test_a_success_that_the_store_never_hears_of(victim_with: VictimWith, endure: Endure) -> None:
    """B050: whose check was right is let in though the store died meanwhile; the entry stays."""
    server = victim_with(keeps=True)
    outcome = endure(
        "SIGKILL while credentials are checked",
        server,
        restarts(server, 2),
        plan=half_of_them_right,
        verify_s=0.03,
    )
    unsettled = sum(book.unsettled for book in outcome.of("login"))
    assert unsettled > 0
    assert outcome.log.count("login: settle failed") == unsettled
    books = outcome.books.items()
    assert sum(outcome.used[key] - book.taken for key, book in books if book.unsettled) > 0


def sign_in_or_newsletter(number: int) -> Person:
    """Let every other account be a subscriber's."""
    who = person(number)
    return who if int(who.account[-1]) % 2 else who._replace(action="newsletter")


def test_an_action_that_outages_let_through(victim_with: VictimWith, endure: Endure) -> None:
    """B048, B055: outage = "allow" lets its own action through, says so, and no other one."""
    server = victim_with(keeps=True)
    outcome = endure(
        'SIGKILL; outage = "allow" beside "deny"',
        server,
        restarts(server, 1),
        plan=sign_in_or_newsletter,
    )
    subscribers, sign_ins = outcome.of("newsletter"), outcome.of("login")
    degraded = sum(book.degraded for book in subscribers)
    assert degraded > 0
    assert outcome.log.count("newsletter: the store is away; admitted uncounted") == degraded
    assert sum(book.unknown for book in subscribers) == 0
    assert sum(book.unknown for book in sign_ins) > 0
