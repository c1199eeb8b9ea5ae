"""Refusals known already, awaited: the same memory, whatever task asks, whatever is cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from authguard import Denied
from tests.aio.conftest import a_guard, cancelled_at, run

if TYPE_CHECKING:
    import valkey

    from authguard import AsyncGuard

VERA: dict[str, Any] = {"account": "vera", "client": "192.0.2.7"}

#: Windows longer than any test.
POLICIES: dict[str, Any] = {
    "login": {
        "limits": [
            {"name": "pair", "by": ["account", "client"], "sliding_log": "1/1h"},
            {"name": "client", "by": ["client"], "sliding_log": "50/1h"},
        ]
    }
}


async def allowed(guard: AsyncGuard, **asking: Any) -> bool:
    """Attempt; tell whether it is admitted."""
    try:
        await guard.attempt("login", **(VERA | asking))
    except Denied:
        return False
    return True


def test_many_tasks_flood_for_no_command(valkey_url: str, client: valkey.Valkey) -> None:
    """A hundred tasks that repeat a refusal at once cost nothing, and are all refused."""

    async def story() -> None:
        async with a_guard(valkey_url, policies=POLICIES) as guard:
            assert [await allowed(guard) for _ in range(2)] == [True, False]
            client.config_resetstat()
            assert not any(await asyncio.gather(*[allowed(guard) for _ in range(100)]))
            stats: Any = client.info("commandstats")
            assert "cmdstat_evalsha" not in stats

    run(story())


def test_an_unlock_in_another_loop_is_heeded_at_once(valkey_url: str) -> None:
    """Whichever guard and loop of the process clears, the next try is admitted."""

    async def clear() -> None:
        async with a_guard(valkey_url, policies=POLICIES) as guard:
            await guard.clear("login", **VERA)

    async def story() -> None:
        async with a_guard(valkey_url, policies=POLICIES) as guard:
            assert [await allowed(guard) for _ in range(3)] == [True, False, False]
            await asyncio.to_thread(asyncio.run, clear())
            assert await allowed(guard)

    run(story())


def test_a_success_that_is_cancelled_leaves_no_refusal_behind(valkey_url: str) -> None:
    """It may have given its place back: whoever was refused meanwhile is let in if so."""

    async def story() -> None:
        async with (
            a_guard(valkey_url, policies=POLICIES) as guard,
            a_guard(valkey_url, policies=POLICIES, remember_refusals_ms=0) as asking,
        ):
            for nth in range(1, 6):
                attempt = await guard.attempt("login", **VERA)
                assert not await allowed(guard)
                task = asyncio.create_task(cancelled_at(attempt.succeed(), nth, as_it_wakes=True))
                await asyncio.gather(task, return_exceptions=True)
                await asyncio.sleep(0.02)
                free = (await asking.peek("login", **VERA)).allowed
                assert await allowed(guard) is free
                await guard.clear("login", **VERA)

    run(story())
