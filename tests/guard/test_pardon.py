"""A pardon: an account goes on wherever it comes from, and nothing else is let go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard import Denied

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from tests.conftest import Clock

POLICY = {
    "login": {
        "limits": [
            {
                "name": "pair",
                "by": ["account", "client"],
                "sliding_log": "3/15m",
                "lockout": "1h",
            },
            {"name": "account", "by": ["account"], "sliding_log": "50/15m"},
            {"name": "client", "by": ["client"], "sliding_log": "50/15m"},
        ]
    }
}
HERE, THERE = "198.51.100.7", "203.0.113.9"


@pytest.fixture
def guard(guard_factory: Callable[..., Guard], clock: Clock) -> Guard:
    """Give a guard whose pairs have a lock."""
    return guard_factory(policies=POLICY, clock=clock)


def left(guard: Guard, account: str, client: str) -> int:
    """Tell how many places the pair has left."""
    return guard.peek("login", account=account, client=client).verdicts[0].remaining


def test_every_pair_of_the_account_starts_afresh(guard: Guard, clock: Clock) -> None:
    """B139: logs and locks by account and client are over with every client; other logs stay."""
    for client in (HERE, THERE):
        for _ in range(3):
            guard.attempt("login", account="vera", client=client)
    guard.attempt("login", account="omar", client=HERE)
    clock.advance(1)
    assert guard.pardon("login", account="Vera") == ("pair",)
    assert [left(guard, "vera", client) for client in (HERE, THERE)] == [3, 3]
    assert left(guard, "omar", HERE) == 2
    used = {use.name: use.used for use in guard.usage("login", account="vera", client=HERE)}
    assert (used["account"], used["client"]) == (6, 4)
    for _ in range(3):
        guard.attempt("login", account="vera", client=HERE)
    with pytest.raises(Denied) as refused:
        guard.attempt("login", account="vera", client=HERE)
    # The second episode: a pardon ends a lock, and does not make it forgotten.
    assert refused.value.decision.retry_after == 3600


def test_what_was_before_a_pardon_never_comes_back(guard: Guard, clock: Clock) -> None:
    """To the end of every window and lock before it, a pardon holds; then its key is gone."""
    for _ in range(3):
        guard.attempt("login", account="vera", client=HERE)
    clock.advance(1)
    guard.pardon("login", account="vera")
    for _ in range(60):
        clock.advance(60_000)
        assert left(guard, "vera", HERE) == 3


def test_a_clock_that_steps_back_admits_nothing_more(guard: Guard, clock: Clock) -> None:
    """A pardon that lies ahead is drawn in: what is made after the step goes on counting."""
    clock.advance(100_000)
    guard.pardon("login", account="vera")
    clock.advance(-90_000)
    for _ in range(3):
        guard.attempt("login", account="vera", client=HERE)
    for _ in range(100):
        clock.advance(2_000)
        with pytest.raises(Denied):
            guard.attempt("login", account="vera", client=HERE)


def test_a_pardon_has_an_end(guard: Guard, client: valkey.Valkey) -> None:
    """Its key lives as long as what was made before it can matter, under an override too."""
    guard.pardon("login", account="vera")
    (key,) = client.keys()
    assert key.endswith(b"~")
    month_ms, slack_ms = 30 * 86_400_000, 3_600_000
    assert month_ms < client.pttl(key) <= month_ms + slack_ms


def test_an_action_without_pairs_has_nothing_to_pardon(guard_factory: Callable[..., Guard]) -> None:
    """Where nothing counts by account and client nothing is written."""
    limits = [{"name": "account", "by": ["account"], "sliding_log": "5/15m"}]
    guard = guard_factory(policies={"login": {"limits": limits}})
    assert guard.pardon("login", account="vera") == ()
