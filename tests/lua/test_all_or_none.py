"""Rule 3: limits are charged together or not at all; a refused attempt leaves no trace."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from authguard import Denied

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard
    from tests.conftest import Clock
    from tests.lua.conftest import Door

ENTRY = 10
FOUR_LIMITS = (
    ("pair", "3/15m"),
    ("account", "4/15m", {"lockout": "15m"}),
    ("client", "5/15m"),
    ("network", "6/15m"),
)


@pytest.mark.parametrize(
    ("who", "refusing"),
    [
        ({"account": "vera", "client": "203.0.113.9"}, ("pair",)),
        ({"account": "omar", "client": "203.0.113.9"}, ("client",)),
        ({"account": "vera", "client": "198.51.100.7"}, ("account",)),
        ({"account": "ines", "client": "203.0.113.10"}, ("network",)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_refusal_leaves_no_trace(
    door: Callable[..., Door],
    clock: Clock,
    store: Callable[[], dict[bytes, bytes]],
    who: dict[str, str],
    refusing: tuple[str, ...],
) -> None:
    """B105, rule 3: whichever limit refuses, not one byte of any log or lock changes."""
    login = door(*FOUR_LIMITS, clock=clock)
    if refusing == ("account",):
        login.fail(2, account="vera", client="203.0.113.9")
        login.fail(2, account="vera", client="192.0.2.1")
    elif refusing == ("network",):
        login.fail(3, account="vera", client="203.0.113.9")
        login.fail(3, account="omar", client="203.0.113.11")
    else:
        login.fail(3, account="vera", client="203.0.113.9")
        if refusing == ("client",):
            login.fail(2, account="omar", client="203.0.113.9")
    before = store()
    for _ in range(20):
        clock.advance(1)
        assert login.refusal(**who).refused_by == refusing
    assert store() == before


def test_a_blocked_client_cannot_use_up_an_account(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 3: hammering from a blocked address takes nothing from the account it names."""
    login = door(("account", "5/15m", {"lockout": "15m"}), ("client", "3/15m"), clock=clock)
    for victim in ("a", "b", "c"):
        login.fail(account=victim)
    for _ in range(50):
        login.refusal(account="vera")
    assert login.used("account", "vera") == 0
    assert login.fail(account="vera", client="198.51.100.7").remaining == 2


def test_a_peek_leaves_no_trace(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """A peek, allowed or refused, charges nothing and changes nothing."""
    login = door(*FOUR_LIMITS, clock=clock)
    for _ in range(4):
        before = store()
        login.guard.peek("login", account="vera", client="203.0.113.9")
        assert store() == before
        if login.guard.peek("login", account="vera", client="203.0.113.9").allowed:
            login.fail()


def test_the_wait_is_the_longest_of_all_that_refuse(
    door: Callable[..., Door], clock: Clock
) -> None:
    """A refusal names every limit that refuses, and waits for the last of them."""
    login = door(("pair", "2/1m"), ("account", "2/15m"), ("client", "2/1h"), clock=clock)
    login.fail()
    clock.advance(10_000)
    login.fail()
    decision = login.refusal()
    assert decision.refused_by == ("pair", "account", "client")
    assert [verdict.retry_after_ms for verdict in decision.verdicts] == [50_000, 890_000, 3_590_000]
    assert decision.retry_after_ms == 3_590_000
    clock.advance(3_590_000 - 1)
    assert login.refusal().refused_by == ("client",)
    clock.advance(1)
    login.fail()


def test_count_refused_counts_in_its_own_log_alone(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Rule 3: with count_refused a refused try is counted there, and nowhere else."""
    login = door(
        ("pair", "2/15m"), ("account", "5/15m"), ("client", "4/15m", {"count_refused": True}),
        clock=clock,
    )  # fmt: skip
    login.fail(2)
    before = store()
    login.refusal()
    changed = [key for key, log in store().items() if log != before[key]]
    assert len(changed) == 1
    assert [login.used(limit) for limit in ("pair", "account", "client")] == [2, 2, 3]


def test_count_refused_keeps_at_most_its_limit(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Rule 8: whatever is thrown at it, single tries or costly ones, it keeps `limit` entries."""
    login = door(("account", "5/15m", {"count_refused": True}), clock=clock)
    login.fail(3)
    for cost in [5, 1, 4, 2, 3] * 20:
        clock.advance(1)
        login.refusal(cost=cost)
        assert [len(log) for log in store().values()] == [5 * ENTRY]


def test_count_refused_lets_in_after_one_quiet_window(
    door: Callable[..., Door], clock: Clock
) -> None:
    """Rule 3: who hammers stays out; who stops is admitted after one window, not before."""
    login = door(("client", "5/15m", {"count_refused": True}), clock=clock)
    login.fail(5)
    for _ in range(60):
        clock.advance(60_000)
        login.refusal()
    waits = [login.refusal().retry_after_ms for _ in range(5)]
    assert waits[-1] == 900_000
    clock.advance(899_999)
    assert login.verdict("client").retry_after_ms == 1
    clock.advance(1)
    login.fail(5)


def test_count_refused_keeps_its_promise_when_another_limit_refuses(
    door: Callable[..., Door], clock: Clock
) -> None:
    """B070: a log that a counted refusal has just filled takes part in the wait it promises."""
    login = door(("account", "2/1m"), ("client", "3/15m", {"count_refused": True}), clock=clock)
    login.fail(2)
    clock.advance(1000)
    decision = login.refusal()
    assert decision.refused_by == ("account", "client")
    assert decision.retry_after_ms == 899_000
    clock.advance(decision.retry_after_ms)
    login.fail()


def test_count_refused_is_not_a_way_round_the_limit(
    door: Callable[..., Door], clock: Clock
) -> None:
    """Rule 8: refusals that pushed others' entries out of a log are not forgiven by a success."""
    login = door(("account", "5/15m", {"count_refused": True}), clock=clock)
    login.fail(4, client="198.51.100.7")
    owner = login.attempt(client="203.0.113.9")
    for _ in range(4):
        clock.advance(1)
        login.refusal(client="203.0.113.9")
    owner.succeed()
    login.sign_in(client="203.0.113.9")
    login.fail(1, client="198.51.100.7")
    login.refusal(client="198.51.100.7")


def test_a_refusal_under_a_lower_limit_lets_nothing_go(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """Rule 8: in a rolling deploy, refusals counted under 5 don't make room for more than 10."""
    new, old = (
        guard_factory(
            clock=clock,
            policies={
                "login": {
                    "limits": [
                        {
                            "name": "account",
                            "by": ["account"],
                            "sliding_log": rate,
                            "count_refused": True,
                        }
                    ]
                }
            },
        )
        for rate in ("10/1h", "5/1h")
    )
    admitted = 0
    for _ in range(20):
        for guard in (*[new] * 10, old):
            clock.advance(1)
            with contextlib.suppress(Denied):
                guard.attempt("login", account="vera")
                admitted += 1
    assert admitted == 10
