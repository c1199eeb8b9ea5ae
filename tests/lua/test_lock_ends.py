"""Rule 6: what lifts a lock, what it leaves behind, and how lockouts rise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.lua.conftest import Door

A, B = "203.0.113.9", "198.51.100.7"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def lock_again(login: Door) -> int:
    """Fill the log, and give the length of the lock in milliseconds."""
    while not login.fail().verdicts[0].lock_set:
        pass
    return login.verdict().retry_after_ms


def test_only_its_own_attempt_lifts_it(door: Callable[..., Door], clock: Clock) -> None:
    """B018: the successes of others leave it, also of those who tried before it was set."""
    login = door(("account", "3/15m", {"lockout": "15m"}), clock=clock)
    others = login.attempt(client=B), login.attempt(client=A)
    filling = login.attempt(client=A)
    for other in others:
        other.succeed()
        assert login.refusal(client=B).verdicts[0].locked
    filling.succeed()
    assert (login.used(), login.verdict().locked) == (0, False)


def test_lifted_it_leaves_the_entries_of_others(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 6: the filling attempt's success gives back its own; the four of another client stay."""
    login = door(("account", "5/15m", {"lockout": "15m"}), clock=clock)
    login.fail(4, client=B)
    login.sign_in(client=A)
    assert (login.used(), login.verdict().locked) == (4, False)
    assert login.fail(client=A).verdicts[0].lock_set


@pytest.mark.parametrize("lockout", ["1m", "1h"], ids="lock {}, window 15m".format)
def test_lifted_late(door: Callable[..., Door], clock: Clock, lockout: str) -> None:
    """Rule 6: a slow success lifts its lock whenever it comes, also after its entry has gone."""
    login = door(("account", "2/15m", {"lockout": lockout}), clock=clock)
    login.fail(client=B)
    filling = login.attempt(client=A)
    clock.advance(login.verdict().retry_after_ms - 1)
    filling.succeed()
    assert (login.used(), login.verdict().locked) == (1 if lockout == "1m" else 0, False)
    login.attempt(client=A)


def test_a_success_after_its_end(door: Callable[..., Door], clock: Clock) -> None:
    """A success that comes after time ended the lock takes nothing of what was counted since."""
    login = door(("account", "2/15m", {"lockout": ["15m", "1h"]}), clock=clock)
    login.fail(client=B)
    filling = login.attempt(client=A)
    clock.advance(15 * MINUTE)
    login.fail(client=A)
    filling.succeed()
    assert (login.used(), login.verdict().locked) == (1, False)
    assert login.fail(client=B).verdicts[0].lock_set
    assert login.verdict().retry_after_ms == 15 * MINUTE, "the first episode was no failure"


def test_a_success_during_the_next_lock(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 6: the attempt that set an earlier lock does not lift a later one."""
    login = door(("account", "2/15m", {"lockout": "15m"}), clock=clock)
    login.fail(client=B)
    filling = login.attempt(client=A)
    clock.advance(15 * MINUTE)
    login.fail(2, client=B)
    filling.succeed()
    assert login.refusal(client=A).retry_after_ms == 15 * MINUTE


def test_cleared_it_leaves_an_empty_log(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 6: ended by an operator, there are fresh tries; its attempt's late success adds none."""
    login = door(("account", "5/15m", {"lockout": "15m"}), clock=clock)
    login.fail(4, client=B)
    filling = login.attempt(client=A)
    cleared = login.guard.clear("login", account="vera")
    assert (cleared.entries, cleared.locks) == (5, 1)
    assert (login.used(), login.verdict().locked) == (0, False)
    login.fail(3, client=A)
    filling.succeed()
    assert login.used() == 3
    assert login.guard.clear("login", account="vera").locks == 0


@pytest.mark.parametrize("by", ["clear", "success"])
def test_a_left_over_timer_removes_nothing(
    door: Callable[..., Door], clock: Clock, by: str
) -> None:
    """B112: window 10 s, 3 failures at 0, gone at 4, 2 more at 5 s: 2 at 10.5 s, 0 at 15.1 s."""
    login = door(("account", "9/10s", {"lockout": "10s"}), clock=clock)
    login.fail(3)
    clock.advance(4000)
    if by == "clear":
        assert login.guard.clear("login", account="vera").entries == 3
    else:
        login.sign_in()
    clock.advance(1000)
    login.fail(2)
    clock.advance(5500)
    assert login.used() == 2
    clock.advance(4600)
    assert login.used() == 0


def test_rising_lockouts(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 6: 15 min, 1 h, 24 h; the last one repeats for as long as it goes on."""
    login = door(("account", "3/15m", {"lockout": ["15m", "1h", "24h"]}), clock=clock)
    for length_ms in (15 * MINUTE, HOUR, DAY, DAY, DAY):
        assert lock_again(login) == length_ms
        clock.advance(length_ms)


@pytest.mark.parametrize(
    ("rate", "quiet_ms"), [("3/15m", DAY), ("3/2d", 2 * DAY)], ids=["longest lock", "window"]
)
def test_they_come_down_after_a_quiet_time(
    door: Callable[..., Door], clock: Clock, rate: str, quiet_ms: int
) -> None:
    """Rule 6: quiet for the longest lockout, or the window if longer, from the lock's end."""
    login = door(("account", rate, {"lockout": ["15m", "1h", "24h"]}), clock=clock)
    for length_ms in (15 * MINUTE, HOUR):
        assert lock_again(login) == length_ms
        clock.advance(length_ms)
    clock.advance(quiet_ms - 1)
    assert lock_again(login) == DAY
    clock.advance(DAY + quiet_ms)
    assert lock_again(login) == 15 * MINUTE


def test_a_lifted_lock_was_no_episode(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 6: a success that lifts its own lock takes the step of the list back too."""
    login = door(("account", "1/15m", {"lockout": ["15m", "1h", "24h"]}), clock=clock)
    for _ in range(5):
        login.sign_in()
    assert lock_again(login) == 15 * MINUTE
    clock.advance(15 * MINUTE)
    for _ in range(5):
        login.sign_in()
    assert lock_again(login) == HOUR


def test_a_cleared_lock_was_an_episode(door: Callable[..., Door], clock: Clock) -> None:
    """A clear ends the lock, not the climb: who fills the log again waits for the next length."""
    login = door(("account", "3/15m", {"lockout": ["15m", "1h"]}), clock=clock)
    assert lock_again(login) == 15 * MINUTE
    login.guard.clear("login", account="vera")
    assert lock_again(login) == HOUR
