"""Recovery: the owner's wait ends, what is full opens, and nobody else's count is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, Denied, InvalidInput, StoreUnavailable
from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard
    from tests.conftest import Clock

HOME, OTHER = "203.0.113.9", "198.51.100.7"
VERA: dict[str, Any] = {"account": "vera", "client": HOME}
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
SECRETS = ["the newest of two secrets, 0123456789", "the secret before it, 0123456789abcd"]


def log(name: str, by: list[str], limit: str, **more: Any) -> dict[str, Any]:
    """Give a limit."""
    return {"name": name, "by": by, "sliding_log": limit, **more}


def policies(*limits: dict[str, Any]) -> dict[str, Any]:
    """Give two actions with the same limits."""
    return {action: {"limits": list(limits)} for action in ("login", "transfer")}


ALL = policies(
    log("pair", ["account", "client"], "5/15m"),
    log("account", ["account"], "10/15m", lockout=["15m", "1h"]),
    log("hour", ["account"], "50/1h"),
    log("over", ["account"], "50/61m"),
    log("day", ["account"], "20/24h"),
    log("month", ["account"], "30/30d", recovery=True),
    log("client", ["client"], "40/15m"),
    log("network", ["network"], "80/15m"),
    log("device", ["device"], "5/15m"),
)


def fail(guard: Guard, times: int, *clients: str, **more: Any) -> None:
    """Fail as often from each client."""
    for client in clients or (HOME,):
        for _ in range(times):
            guard.attempt("login", **(VERA | {"client": client} | more))


def used(guard: Guard, action: str = "login", **who: Any) -> dict[str, int]:
    """Tell how many places of each limit are taken."""
    verdicts = guard.peek(action, **(VERA | who)).verdicts
    return {each.name: each.limit - each.remaining for each in verdicts}


def test_short_logs_and_the_lock_go_the_rest_stays(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """A56: up to an hour is emptied and the lock ended; longer, and by address, stays."""
    guard = guard_factory(policies=ALL, clock=clock)
    fail(guard, 5, HOME, OTHER)
    with pytest.raises(Denied):
        guard.attempt("login", **VERA | {"client": "192.0.2.1"})
    cleared = guard.recover("login", **VERA)
    assert (cleared.entries, cleared.locks) == (5 + 10 + 10, 1)
    long_ones = {"over": 10, "day": 10, "month": 10}
    short_ones = {"account": 0, "hour": 0}
    assert used(guard) == {"pair": 0, **short_ones, **long_ones, "client": 5, "network": 5}
    assert used(guard, client=OTHER)["pair"] == 5
    assert guard.recover("login", **VERA).locks == 0


def test_without_a_client_no_pair_is_touched(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """Only the client that the owner is at gets its pair back."""
    guard = guard_factory(policies=ALL, clock=clock)
    fail(guard, 5, HOME, OTHER)
    guard.recover("login", account="vera")
    assert used(guard)["pair"] == 5
    assert guard.peek("login", **VERA).refused_by == ("pair",)


def test_a_long_log_that_is_full_is_lifted(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """A54: a day that would keep the owner out is emptied; one place below it isn't."""
    guard = guard_factory(policies=ALL, clock=clock)
    for number in range(19):
        fail(guard, 1, f"100.{64 + number}.1.1")
        if number == 9:
            clock.advance(HOUR)
    guard.recover("login", account="vera")
    assert used(guard)["day"] == 19
    fail(guard, 1, "100.100.1.1")
    guard.recover("login", account="vera")
    assert (used(guard)["day"], used(guard)["month"]) == (0, 20)


@pytest.mark.parametrize("recovered", [False, True])
def test_what_needs_a_recovery_needs_one(
    guard_factory: Callable[..., Guard], clock: Clock, recovered: bool
) -> None:
    """A50: a full limit with recovery opens for a recovered account alone."""
    guard = guard_factory(policies=ALL, clock=clock)
    for number in range(30):
        fail(guard, 1, f"100.{64 + number}.1.1")
        clock.advance(2 * HOUR)
    clock.advance(2 * DAY)
    assert guard.peek("login", **VERA).refused_by == ("month",)
    guard.recover("login", account="vera", recovered=recovered)
    assert used(guard)["month"] == (0 if recovered else 30)
    assert guard.peek("login", **VERA).allowed is recovered


def test_a_month_that_is_not_full_goes_on(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """Rule 5: not even a recovery refills a month that has places left."""
    guard = guard_factory(policies=ALL, clock=clock)
    fail(guard, 4)
    guard.recover("login", account="vera", recovered=True)
    assert used(guard)["month"] == 4


def test_other_actions_accounts_and_devices_stay(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """A56: recovery of one account at one action is nobody else's."""
    guard = guard_factory(policies=ALL, clock=clock)
    fail(guard, 3)
    fail(guard, 3, account="omar")
    fail(guard, 3, device="phone")
    guard.attempt("transfer", **VERA)
    guard.recover("login", **VERA, recovered=True)
    assert used(guard)["account"] == 0
    assert used(guard, account="omar")["account"] == 3
    assert used(guard, device="phone")["device"] == 3
    assert used(guard, "transfer")["account"] == 1


def test_an_operators_block_stays(guard_factory: Callable[..., Guard]) -> None:
    """B094, B146: no recovery lifts what an operator has set."""
    guard = guard_factory(policies=ALL)
    guard.block(account="vera")
    guard.block(account="vera", client=HOME)
    guard.block(client=HOME)
    assert guard.recover("login", **VERA, recovered=True).locks == 0
    with pytest.raises(Denied):
        guard.attempt("login", **VERA | {"client": OTHER})
    assert guard.unblock(account="vera")
    assert guard.unblock(account="vera", client=HOME)
    assert guard.unblock(client=HOME)


def test_after_it_the_next_lock_is_the_longer_one(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """Rule 6: it leaves fresh tries, and the level stays: the next episode waits the hour."""
    guard = guard_factory(policies=ALL, clock=clock)
    fail(guard, 5, HOME, OTHER)
    guard.recover("login", account="vera")
    fail(guard, 5, "192.0.2.1", "192.0.2.2")
    refused = guard.peek("login", account="vera", client="192.0.2.3")
    waits = {each.name: each.retry_after_ms for each in refused.verdicts}
    assert waits["account"] == HOUR


def test_it_holds_under_both_secrets(guard_factory: Callable[..., Guard], clock: Clock) -> None:
    """While a secret is being changed, what stands under either is emptied, and counted once."""
    guard = guard_factory(policies=ALL, clock=clock, secret=SECRETS)
    fail(guard, 5, HOME, OTHER)
    cleared = guard.recover("login", **VERA)
    assert (cleared.entries, cleared.locks) == (25, 1)
    for secret in SECRETS:
        alone = guard_factory(policies=ALL, clock=clock, secret=secret)
        assert used(alone)["account"] == 0
        assert used(alone)["day"] == 10


def test_a_parallel_failure_is_before_or_after(guard_factory: Callable[..., Guard]) -> None:
    """Rule 1: whatever is reserved while an owner recovers, no more than the limit is admitted."""
    import threading

    guard = guard_factory(policies=policies(log("account", ["account"], "5/15m", lockout="15m")))
    admitted, barrier, recovered = [], threading.Barrier(9), threading.Event()

    def attack() -> None:
        barrier.wait()
        tries_left = 20  # of after the last recovery: refusals known already may outrun the three
        while tries_left:
            tries_left -= recovered.is_set()
            try:
                guard.attempt("login", **VERA)
            except Denied:
                continue
            admitted.append(1)

    threads = [threading.Thread(target=attack) for _ in range(8)]
    for thread in threads:
        thread.start()
    barrier.wait()
    recoveries = 3
    for _ in range(recoveries):
        guard.recover("login", account="vera")
    recovered.set()
    for thread in threads:
        thread.join()
    assert 5 <= len(admitted) <= 5 * (recoveries + 1)
    assert not guard.peek("login", **VERA).allowed


def test_what_can_not_be_recovered_is_told(guard_factory: Callable[..., Guard]) -> None:
    """AG009 for an action that has no policy, and InvalidInput for what is no name."""
    guard = guard_factory(policies=ALL)
    with pytest.raises(ConfigurationError, match="AG009"):
        guard.recover("lgoin", account="vera")
    with pytest.raises(InvalidInput):
        guard.recover("login", account="ve\0ra")


def test_without_the_store_nothing_is_promised(guard_factory: Callable[..., Guard]) -> None:
    """A86: StoreUnavailable, so nobody is told that a wait is over."""
    with embedded_valkey() as server:
        guard = guard_factory(store=server.url, policies=ALL, deadline_ms=2_000)
        guard.recover("login", account="vera")
    with pytest.raises(StoreUnavailable):
        guard.recover("login", account="vera")
