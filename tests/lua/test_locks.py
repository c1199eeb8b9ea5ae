"""Rule 6: the reservation that fills the log sets the lock, and its end is fixed then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.lua.conftest import Door

A, B = "203.0.113.9", "198.51.100.7"


def test_tries_do_not_extend_it(door: Callable[..., Door], clock: Clock) -> None:
    """B105: tries at 100, 500, 899 s of a lock of 900 s wait 800, 400, 1 s; at 900 s one is in."""
    login = door(("account", "5/5m", {"lockout": "15m"}), clock=clock)
    login.fail(5)
    start_ms = clock.now_ms
    for at_s, left_s in [(100, 800), (500, 400), (899, 1)]:
        clock.now_ms = start_ms + at_s * 1000
        assert login.refusal().retry_after == left_s
    clock.now_ms = start_ms + 899_999
    login.refusal()
    clock.now_ms = start_ms + 900_000
    login.sign_in()


def test_the_wait_is_the_locks(door: Callable[..., Door], clock: Clock) -> None:
    """B073: a lock of 900 s over a window of 300 s: at 10 s wait 890 s, at 899.5 s wait 1 s."""
    login = door(("account", "5/5m", {"lockout": "15m"}), clock=clock)
    login.fail(5)
    clock.advance(10_000)
    assert login.refusal().retry_after == 890
    clock.advance(889_500)
    assert login.refusal().retry_after == 1


@pytest.mark.parametrize("lockout", ["1m", "15m", "1h"], ids="lock {}, window 15m".format)
def test_ended_by_time_it_leaves_an_empty_log(
    door: Callable[..., Door], clock: Clock, lockout: str
) -> None:
    """B106: after the lock, shorter or longer than the window, there are fresh tries."""
    login = door(("account", "5/15m", {"lockout": lockout}), clock=clock)
    login.fail(2)
    clock.advance(5000)
    login.fail(3)
    clock.advance(login.refusal().retry_after_ms)
    assert login.used() == 0
    assert [login.fail().remaining for _ in range(5)] == [4, 3, 2, 1, 0]
    assert login.verdict().locked


def test_it_is_reported_once(door: Callable[..., Door], clock: Clock) -> None:
    """The one attempt that fills the log is told that it set the lock; no other is."""
    login = door(("account", "3/15m", {"lockout": "15m"}), ("client", "9/15m"), clock=clock)
    decisions = [login.fail() for _ in range(3)] + [login.refusal() for _ in range(3)]
    told = [[verdict.lock_set for verdict in decision.verdicts] for decision in decisions]
    assert told == [[False, False]] * 2 + [[True, False]] + [[False, False]] * 3
    assert [decision.verdicts[0].locked for decision in decisions] == [False] * 3 + [True] * 3


def test_a_costly_attempt_fills_it_too(door: Callable[..., Door], clock: Clock) -> None:
    """A lock is set when the last place is taken, by whatever cost; a refused cost sets none."""
    login = door(("account", "5/15m", {"lockout": "15m"}), clock=clock)
    login.fail(cost=3)
    assert not login.refusal(cost=3).verdicts[0].locked
    assert login.fail(cost=2).verdicts[0].lock_set


def test_an_attempt_that_another_limit_refuses_sets_none(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Rule 3: a refused attempt would have filled the log; it sets no lock."""
    login = door(("account", "3/15m", {"lockout": "15m"}), ("client", "2/15m"), clock=clock)
    login.fail(2)
    assert login.refusal().refused_by == ("client",)
    assert not any(key.endswith(b"!") for key in store())
    assert login.fail(client=B).verdicts[0].lock_set


def test_the_configured_time_of_each_policy(door: Callable[..., Door], clock: Clock) -> None:
    """B110: login locks for 120 s, another action for 300 s; neither takes the other's."""
    login = door(("account", "5/5m", {"lockout": "2m"}), clock=clock)
    verify = door(("account", "5/15m", {"lockout": "5m"}), action="otp.verify", clock=clock)
    login.fail(5)
    verify.fail(5)
    clock.advance(119_999)
    login.refusal()
    clock.advance(1)
    login.sign_in()
    clock.advance(179_999)
    verify.refusal()
    clock.advance(1)
    verify.sign_in()


def test_each_action_has_its_own(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 6: a locked sign-in neither refuses another action nor is lifted by its success."""
    login = door(("account", "5/15m", {"lockout": "15m"}), clock=clock)
    code = door(("account", "5/15m", {"lockout": "15m"}), action="login.code", clock=clock)
    login.fail(5)
    code.fail(4)
    code.sign_in()
    assert code.used() == 0
    login.refusal()


def test_one_answer_from_every_side(door: Callable[..., Door], clock: Clock) -> None:
    """B111: up to its end every question says locked, from its end on none does."""
    login = door(("account", "5/5m", {"lockout": "15m"}), clock=clock)
    login.fail(5)
    clock.advance(899_999)
    assert login.verdict().locked
    assert login.refusal().verdicts[0].locked
    assert not login.guard.peek("login", account="vera", client=B).allowed
    clock.advance(1)
    assert not login.verdict().locked
    assert login.guard.peek("login", account="vera", client=B).allowed
    assert login.guard.clear("login", account="vera").locks == 0
    login.fail()


def test_the_peek_sets_none(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Asking with one place left takes no place and sets no lock."""
    login = door(("account", "2/15m", {"lockout": "15m"}), clock=clock)
    login.fail()
    before = store()
    decision = login.guard.peek("login", account="vera", client=A)
    assert (decision.allowed, decision.verdicts[0].lock_set) == (True, False)
    assert store() == before
