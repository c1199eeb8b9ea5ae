"""Rule 5: a success gives back its own reservation, and refills nobody's budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.lua.conftest import Door

A, B = "203.0.113.9", "198.51.100.7"
LIMITS = ["pair", "account", "day", "month", "client", "client-day", "network"]


def test_own_account_refills_nothing(door: Callable[..., Door], clock: Clock) -> None:
    """B017: 4 failures on fresh accounts, 1 success on one's own, in turn: 20 failures."""
    login = door(("account", "5/5m"), ("client", "20/5m"), clock=clock)
    for number in range(24):
        if number % 5 == 4:
            login.sign_in("omar")
        else:
            login.fail(account=f"user{number}")
        clock.advance(10)
    login.refusal(account="one more")
    login.refusal(account="omar")


def test_own_account_between_guesses_in_the_default_profile(
    door: Callable[..., Door], clock: Clock
) -> None:
    """A35: 2 wrong at 10 victims in turn, then 1 right as eve: the 31st failure is refused."""
    login = door(clock=clock)
    for number in range(30):
        if number % 2 == 0 and number < 28:
            login.sign_in("eve")
        login.fail(account=f"victim{number // 2 % 10}")
        clock.advance(1000)
    assert login.refusal(account="victim0").refused_by == ("client",)
    assert login.used("client") == 30


def test_nothing_but_succeed_gives_back(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """A36: leaving the block, peeking, and other accounts' successes give nothing back."""
    login = door(("account", "5/15m"), ("client", "30/15m"), clock=clock)
    with login.attempt("vera"):
        pass
    before = store()
    login.guard.peek("login", account="vera", client=A)
    login.sign_in("eve")
    assert store() == before


def test_somebody_elses_success_unlocks_nobody(door: Callable[..., Door], clock: Clock) -> None:
    """B018: omar's success from vera's address leaves her lock; his own count is 0."""
    login = door(("account", "5/5m", {"lockout": "15m"}), ("client", "20/5m"), clock=clock)
    login.fail(5)
    login.sign_in("omar")
    assert login.used("account", "omar") == 0
    clock.advance(899_999)
    for client in (A, B):
        assert login.refusal(client=client).verdicts[0].locked
    clock.advance(1)
    login.sign_in()


def test_a_typo_after_a_success_is_the_first(door: Callable[..., Door], clock: Clock) -> None:
    """B019: 4 wrong, 1 right, 1 wrong: count 1, remaining 4, no lock."""
    login = door(("account", "5/5m", {"lockout": "15m"}), clock=clock)
    login.fail(4)
    login.sign_in()
    decision = login.fail()
    assert (decision.remaining, decision.verdicts[0].lock_set) == (4, False)
    login.sign_in()
    assert login.used() == 0


def test_a_success_that_would_fill_the_log_leaves_no_lock(
    door: Callable[..., Door], clock: Clock
) -> None:
    """B019: 4 wrong, the fifth is right: it locks while it is checked, then all is clear."""
    login = door(("account", "5/5m", {"lockout": "15m"}), clock=clock)
    login.fail(4)
    attempt = login.attempt()
    assert attempt.decision.verdicts[0].lock_set
    login.refusal()
    attempt.succeed()
    assert (login.used(), login.verdict().locked) == (0, False)


def test_successes_earn_no_credit(door: Callable[..., Door], clock: Clock) -> None:
    """B020: after 100 successes exactly 5 failures are checked, the 6th try is refused."""
    login = door(("account", "5/5m"), ("pair", "5/5m"), ("client", "20/5m"), clock=clock)
    for _ in range(100):
        login.sign_in()
    login.fail(5)
    login.refusal()


def test_a_right_password_refused_for_another_reason(
    door: Callable[..., Door], clock: Clock
) -> None:
    """B022: 10 times right but disabled, said by succeed(): count 0; an exception: counted."""
    login = door(("account", "5/5m", {"lockout": "15m"}), clock=clock)
    for _ in range(10):
        login.sign_in("omar")
    assert (login.used("account", "omar"), login.verdict("account", "omar").locked) == (0, False)
    with pytest.raises(RuntimeError, match="the app's own"), login.attempt("omar"):
        raise RuntimeError("the app's own code broke")
    assert login.used("account", "omar") == 1


def test_another_action_is_untouched(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """B023: after 3 reset requests and a right sign-in, the 4th request is refused as before."""
    forgot = door(("account", "3/1h"), ("client", "10/1h"), action="password.forgot", clock=clock)
    forgot.fail(3)
    before = store()
    login = door(clock=clock)
    login.fail(2)
    login.sign_in()
    assert {key: log for key, log in store().items() if key in before} == before
    forgot.refusal()
    assert forgot.used("client") == 3


def test_only_short_logs_by_account_forgive(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 5: after 2 failures and a success only pair and account are empty (default profile)."""
    login = door(clock=clock)
    login.fail(2)
    login.sign_in()
    assert {limit: login.used(limit) for limit in LIMITS} == {
        "pair": 0,
        "account": 0,
        "day": 2,
        "month": 2,
        "client": 2,
        "client-day": 2,
        "network": 2,
    }


def test_the_own_reservation_is_given_back_everywhere(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Rule 5: a sign-in without a failure leaves nothing in the store, whatever it costs."""
    login = door(clock=clock)
    login.sign_in(cost=3)
    assert store() == {}


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        (("account", "5/1h"), 0),
        (("account", "5/61m"), 2),
        (("pair", "5/60m"), 0),
        (("client", "5/1m"), 2),
        (("account", "5/15m", {"forgive": False}), 2),
        (("day", "5/24h", {"forgive": True}), 0),
    ],
    ids=str,
)
def test_the_hour_and_the_switch(
    door: Callable[..., Door], clock: Clock, limit: tuple[str, str], left: int
) -> None:
    """Rule 5: an hour forgives, a minute more does not; `forgive` says otherwise where set."""
    login = door(limit, clock=clock)
    login.fail(2)
    login.sign_in()
    assert login.used(limit[0]) == left
