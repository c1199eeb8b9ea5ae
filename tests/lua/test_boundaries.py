"""Rule 8: the window's edges, to the millisecond, on a clock that only the test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clock
    from tests.lua.conftest import Door


@pytest.mark.parametrize("phase_ms", [0, 1, 2, 499, 500, 998, 999])
def test_a_full_burst_before_and_after_any_instant(
    door: Callable[..., Door], clock: Clock, phase_ms: int
) -> None:
    """A full burst at t, none until t + window - 1 ms, and a full one at t + window sharp."""
    login = door(("account", "5/1m"), clock=clock)
    clock.advance(phase_ms)
    for _ in range(3):
        login.fail(5)
        login.refusal()
        clock.advance(59_999)
        for _ in range(5):
            assert login.refusal().retry_after_ms == 1
        clock.advance(1)


def test_no_window_anywhere_holds_more(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 8: with tries each 7 ms, no window of 1 s holds more than 5 admitted ones."""
    login = door(("account", "5/1s"), clock=clock)
    admitted = []
    for _ in range(600):
        decision = login.guard.peek("login", account="vera", client="203.0.113.9")
        if decision.allowed:
            admitted.append(login.fail().now_ms)
        else:
            login.refusal()
        clock.advance(7)
    assert len(admitted) == 25
    assert min(b - a for a, b in zip(admitted, admitted[5:], strict=False)) >= 1000


def test_the_limit_is_the_number_of_checks(door: Callable[..., Door], clock: Clock) -> None:
    """B009: limit 5: five are checked with 4, 3, 2, 1, 0 remaining; the sixth, even right, not."""
    login = door(("account", "5/5m"), clock=clock)
    assert [login.fail().remaining for _ in range(5)] == [4, 3, 2, 1, 0]
    login.refusal()


def test_one_guess_from_each_of_many_addresses(door: Callable[..., Door], clock: Clock) -> None:
    """A49: 11 addresses, one wrong guess each in 15 minutes: the 11th is refused (default)."""
    login = door(clock=clock)
    for number in range(10):
        login.fail(client=f"198.51.{number}.7")
        clock.advance(80_000)
    assert login.refusal(client="198.51.10.7").refused_by == ("account",)


def test_every_number_is_right_by_itself(door: Callable[..., Door], clock: Clock) -> None:
    """B010: after k failures count, remaining, refusal and the attempt's answer all agree."""
    login = door(("account", "5/5m"), clock=clock)
    for failures in range(6):
        decision = login.guard.peek("login", account="vera", client="203.0.113.9")
        assert login.used() == failures
        assert decision.remaining == 5 - failures
        assert decision.allowed is (failures < 5)
        assert decision.refused_by == (() if failures < 5 else ("account",))
        if failures < 5:
            assert login.fail().remaining == 5 - failures - 1
    login.refusal()


def test_the_wall_clock_minute_means_nothing(door: Callable[..., Door], clock: Clock) -> None:
    """B011: a burst that straddles the minute waits for its own window, rounded up to 59 s."""
    login = door(("account", "5/1m"), clock=clock)
    assert clock.now_ms % 60_000 == 0
    clock.advance(59_000)
    for _ in range(5):
        login.fail()
        clock.advance(200)
    clock.advance(500)
    decision = login.refusal()
    assert (decision.retry_after_ms, decision.retry_after) == (58_500, 59)
    clock.advance(58_500)
    login.fail()
    assert login.refusal().retry_after_ms == 200


def test_old_entries_go_before_the_counting(door: Callable[..., Door], clock: Clock) -> None:
    """B013: at window - 1 ms refused with 1 s; at the window admitted, with 4 remaining."""
    login = door(("account", "5/1m"), clock=clock)
    login.fail(5)
    clock.advance(59_999)
    assert login.refusal().retry_after == 1
    clock.advance(1)
    assert login.fail().remaining == 4


@pytest.mark.parametrize("costs", [(8, 1, 1), (1, 1, 8), (1, 8, 1), (3, 3, 3, 1), (10,), (2, 8)])
def test_costs_add_up_in_any_order(
    door: Callable[..., Door], clock: Clock, costs: tuple[int, ...]
) -> None:
    """B014: costs of 10 in all fill a limit of 10 in whatever order; one more is refused."""
    login = door(("account", "10/1m"), clock=clock)
    left = 10
    for cost in costs:
        clock.advance(3)
        left -= cost
        assert login.fail(cost=cost).remaining == left
    login.refusal()


def test_a_cost_beyond_what_is_left(door: Callable[..., Door], clock: Clock) -> None:
    """A large cost that doesn't fit is refused whole, and a smaller one still gets in."""
    login = door(("account", "10/1m"), clock=clock)
    login.fail(cost=8)
    clock.advance(1000)
    assert login.refusal(cost=3).retry_after_ms == 59_000
    assert login.used() == 8
    assert login.fail(cost=2).remaining == 0


def test_a_cost_beyond_the_limit(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """B012: cost 100 of limit 10 is an error that names both; nothing is counted or promised."""
    login = door(("account", "10/1m"), clock=clock)
    login.fail(cost=5)
    before = store()
    with pytest.raises(ValueError, match=r"100 .* 10 of 'account'"):
        login.attempt(cost=100)
    assert store() == before
    assert login.fail(cost=5).remaining == 0
    login.refusal()


def test_one_attempt_counts_once(door: Callable[..., Door], clock: Clock) -> None:
    """B016: leaving the block, by its end or by an exception, adds nothing to the reservation."""
    login = door(("account", "5/5m"), ("pair", "5/5m"), ("client", "5/5m"), clock=clock)
    with login.attempt():
        pass
    with pytest.raises(RuntimeError, match="broken"), login.attempt():
        raise RuntimeError("broken")
    for limit in ("account", "pair", "client"):
        assert login.used(limit) == 2
