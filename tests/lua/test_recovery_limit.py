"""The log whose end is the account's recovery: it tells no true wait, and that it is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard import SlidingLog
from authguard.policy import RECOVERY_WAIT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.lua.conftest import Gate

DAY = 86_400_000


@pytest.mark.parametrize("secrets", [1, 2])
def test_a_full_one_says_that_the_account_must_be_recovered(
    gate: Callable[..., Gate], clock: Clock, secrets: int
) -> None:
    """The failure that fills it says so, and so does every refusal, with one constant wait."""
    login = gate(("account", SlidingLog("3/30d")), secrets=secrets, recovery=True)
    told = []
    for _ in range(4):
        (verdict,) = login.attempt(account="vera").decision.verdicts
        told.append((verdict.refuses, verdict.recovery, verdict.retry_after_ms))
        clock.advance(DAY)
    wait_ms = RECOVERY_WAIT_MS
    assert told == [(False, False, 0)] * 2 + [(False, True, 0), (True, True, wait_ms)]
    clock.advance(20 * DAY)
    (verdict,) = login.peek(account="vera").verdicts
    assert (verdict.retry_after_ms, verdict.reset_after_ms) == (wait_ms, wait_ms)
    clock.advance(6 * DAY)
    (verdict,) = login.peek(account="vera").verdicts
    assert (verdict.refuses, verdict.recovery) == (False, False)


def test_under_two_secrets_nothing_else_is_told(gate: Callable[..., Gate], clock: Clock) -> None:
    """Where the old secret's log is full and the new one's is not, the wait is the constant."""
    old = gate(("account", SlidingLog("3/30d")), recovery=True)
    for _ in range(3):
        old.attempt(account="vera")
    both = gate(("account", SlidingLog("3/30d")), secrets=2, recovery=True)
    object.__setattr__(both, "pseudonyms", both.pseudonyms[::-1])
    (verdict,) = both.attempt(account="vera").decision.verdicts
    assert (verdict.recovery, verdict.retry_after_ms, verdict.reset_after_ms) == (
        True,
        RECOVERY_WAIT_MS,
        RECOVERY_WAIT_MS,
    )


def test_a_success_that_fills_it_gives_its_place_back(gate: Callable[..., Gate]) -> None:
    """Rule 5: the reservation of a right password is no failure: after it there is a place."""
    login = gate(("account", SlidingLog("2/30d", forgive=False)), recovery=True)
    login.attempt(account="vera")
    owner = login.attempt(account="vera")
    assert owner.decision.verdicts[0].recovery
    owner.succeed()
    assert not login.peek(account="vera").verdicts[0].recovery


def test_other_limits_have_their_true_waits(gate: Callable[..., Gate], clock: Clock) -> None:
    """A limit that is none of these tells its own wait, and never speaks of recovery."""
    login = gate(("account", SlidingLog("1/30d")))
    login.attempt(account="vera")
    clock.advance(DAY)
    (verdict,) = login.attempt(account="vera").decision.verdicts
    assert (verdict.recovery, verdict.retry_after_ms) == (False, 29 * DAY)
