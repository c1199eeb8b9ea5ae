"""A loop that is held up, a burst, a group of errors: what they must not do to an attempt."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from authguard import AsyncGuard, Denied, Guard, HashingUnavailable, StoreUnavailable
from authguard.stores.valkey_async import AsyncValkeyStore
from tests.conftest import PATIENT_MS, SECRET
from tests.stores.wire import Wire, honest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard.testing import EmbeddedValkey
    from tests.stores.wire import Step, Talk

VERA = {"account": "vera", "client": "192.0.2.7"}
ONE = {"login": {"limits": [{"name": "account", "by": ["account"], "sliding_log": "1/1h"}]}}


@pytest.mark.parametrize("held_s", [0.0, 0.05])
def test_a_reply_too_many_is_nobodys_though_the_loop_was_held_up(
    valkey_server: EmbeddedValkey, valkey_url: str, held_s: float
) -> None:
    """A second reply that came while the loop did something else is never the next attempt's."""

    def twice(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        reply = talk.relay(command)
        yield reply
        if talk.number == 1:
            yield 0.01
            yield reply

    with Guard(valkey_url, secret=SECRET, policies=ONE, deadline_ms=PATIENT_MS) as guard:
        guard.attempt("login", **VERA)
    with Wire(honest, valkey_server.port) as wire:
        wire.answer = twice

        async def held() -> None:
            async with AsyncGuard(
                wire.url, secret=SECRET, policies=ONE, deadline_ms=PATIENT_MS
            ) as guard:
                await guard.attempt("login", account="omar", client="192.0.2.8")
                time.sleep(held_s)  # noqa: ASYNC251 (that is the point)
                if not held_s:
                    await asyncio.sleep(0.05)
                with pytest.raises(Denied):
                    await guard.attempt("login", **VERA)

        asyncio.run(held())
        assert len(wire.talks) == 2


def test_a_crowd_is_refused_at_once_and_the_rest_is_served(valkey_url: str) -> None:
    """B059: beyond 256 that wait for a connection nobody waits in vain, and nobody's wait fails."""

    async def story() -> Counter[str]:
        store = AsyncValkeyStore(valkey_url, deadline_ms=PATIENT_MS, connections=2)
        async with AsyncGuard(store, secret=SECRET) as guard:

            async def one(number: int) -> str:
                try:
                    await guard.peek("login", account=f"u{number}", client="192.0.2.7")
                except StoreUnavailable as error:
                    return error.reason
                return "answered"

            return Counter(await asyncio.gather(*(one(number) for number in range(400))))

    told = asyncio.run(story())
    assert set(told) == {"answered", "crowded"}
    assert told["answered"] >= 256


@pytest.mark.parametrize(
    ("error", "used"),
    [
        (ExceptionGroup("tasks", [HashingUnavailable("busy")]), 0),
        (ExceptionGroup("tasks", [ExceptionGroup("more", [HashingUnavailable("busy")])]), 0),
        (ExceptionGroup("tasks", [HashingUnavailable("busy"), ValueError("else")]), 1),
    ],
)
def test_a_group_of_nothing_but_busy_hashing_releases(
    guard_factory: Callable[..., Guard], error: ExceptionGroup, used: int
) -> None:
    """No password was looked at, so a TaskGroup that fails of it locks nobody out."""
    guard = guard_factory()
    with pytest.raises(ExceptionGroup), guard.attempt("login", **VERA):
        raise error
    usage = {each.name: each.used for each in guard.usage("login", **VERA)}
    assert usage["account"] == used


def test_a_task_that_is_begun_within_an_attempt_has_its_own_deadline(valkey_url: str) -> None:
    """What runs on after a decision is not bound by it, whoever began it there."""

    async def story() -> int:
        begun: list[asyncio.Task[int]] = []
        async with AsyncGuard(valkey_url, secret=SECRET, deadline_ms=300) as guard:

            async def later() -> int:
                await asyncio.sleep(0.4)
                return (await guard.peek("login", **VERA)).verdicts[0].remaining

            guard.when_data_is_lost(lambda: begun.append(asyncio.create_task(later())))
            guard._mark._seen, guard._mark._due_s = b"another", 0.0
            await guard.attempt("login", **VERA)
            (task,) = begun
            return await task

    assert asyncio.run(story()) == 4
