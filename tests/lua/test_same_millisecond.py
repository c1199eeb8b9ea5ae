"""Unique entries: many attempts in one millisecond are many entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from authguard import NO_ACCOUNT
from authguard._core.attempt import Reservation
from authguard._core.keys import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Door

ENTRY = 10


def test_fifty_in_one_tick_are_fifty(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """B007, A39: with the clock stopped, 50 are admitted, counted and stored; the 51st is not."""
    login = door(("account", "50/15m"), clock=clock)
    assert [login.fail().remaining for _ in range(50)] == list(range(49, -1, -1))
    login.refusal()
    assert login.used() == 50
    assert [len(log) for log in store().values()] == [50 * ENTRY]


def test_ten_calls_of_five_are_fifty(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """B007: a call of cost 5 takes five places; ten of them fill a limit of 50 exactly."""
    login = door(("account", "50/15m"), clock=clock)
    assert [login.fail(cost=5).remaining for _ in range(10)] == list(range(45, -1, -5))
    login.refusal(cost=5)
    login.refusal(cost=1)
    assert [len(log) for log in store().values()] == [50 * ENTRY]


def test_fifty_one_in_one_packet(
    door: Callable[..., Door], client: valkey.Valkey, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """B007, A39: 51 calls in one pipeline, by the store's own clock: 50 admitted, 50 entries."""
    policy = door(("account", "50/15m")).guard.policies["login"]
    binding = Shape.of(policy, frozenset({"account"})).bind({"account": bytes(32)})
    with client.pipeline(transaction=False) as pipeline:
        for number in range(51):
            attempt_id = b"abc" + number.to_bytes(2, "big")
            call = Reservation(binding, attempt_id, 1, knows_client=True).acquire(None)
            pipeline.execute_command(
                "EVAL", call.script.text, len(call.keys), *call.keys, *call.args
            )
        replies = pipeline.execute()
    decisions = [call.read(reply) for reply in replies]
    assert [decision.allowed for decision in decisions] == [True] * 50 + [False]
    assert len({decision.now_ms for decision in decisions}) < 50, "no two shared a millisecond"
    assert [len(log) for log in store().values()] == [50 * ENTRY]


def test_two_at_once_without_an_account(door: Callable[..., Door], clock: Clock) -> None:
    """A request that names no account is charged to its client alone, and to nobody's account."""
    login = door(("account", "5/15m"), ("client", "5/15m"), clock=clock)
    for _ in range(2):
        login.guard.attempt("login", account=NO_ACCOUNT, client="203.0.113.9")
    assert login.used("client") == 2
    assert login.used("account") == 0
