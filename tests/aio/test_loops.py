"""One guard in many loops: each has its own connections, and takes them along when it ends."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from typing import TYPE_CHECKING

from tests.servers import wait_until

from .conftest import VERA, a_guard, pools, run

if TYPE_CHECKING:
    import valkey

    from authguard import AsyncGuard


async def attempt(guard: AsyncGuard) -> int:
    """Be admitted; tell how many places are left."""
    return (await guard.attempt("login", **VERA)).decision.verdicts[0].remaining


def nobody_is_connected(plain: valkey.Valkey) -> None:
    """Wait until nobody but the asking client is."""
    wait_until(lambda: len(plain.client_list()) == 1, "every other connection is closed")


def test_loop_after_loop_uses_one_guard(valkey_url: str, client: valkey.Valkey) -> None:
    """A guard serves asyncio.run after asyncio.run; no connection outlives its loop."""
    guard = a_guard(valkey_url)
    assert [run(attempt(guard), thorough=True) for _ in range(5)] == [4, 3, 2, 1, 0]
    nobody_is_connected(client)
    assert len(guard.store._loops) == 1


def test_loops_in_threads_use_one_guard(valkey_url: str, client: valkey.Valkey) -> None:
    """Loops of several threads share a guard at the same time, and its count is exact."""
    guard = a_guard(valkey_url)
    left: list[int] = []

    async def two() -> list[int]:
        return list(await asyncio.gather(attempt(guard), attempt(guard)))

    threads = [threading.Thread(target=lambda: left.extend(asyncio.run(two()))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(left) == [1, 2, 3, 4]
    nobody_is_connected(client)


def test_a_loop_that_ends_without_a_word_is_left_behind(valkey_url: str) -> None:
    """The connections of a loop that was just closed are not used by the next one."""
    guard = a_guard(valkey_url)
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(attempt(guard)) == 4
    loop.close()

    async def story() -> None:
        assert await attempt(guard) == 3
        assert set(guard.store._loops) == {asyncio.get_running_loop()}
        assert len(pools(guard)[0]._idle) == 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of asyncio itself, on that loop
        run(story(), thorough=True)
        del loop
        gc.collect()


def test_a_breaker_knows_of_all_loops(valkey_url: str) -> None:
    """A server that is silent for one loop is so for the next: it isn't asked anew by each."""
    guard = a_guard(valkey_url)

    async def breaker() -> object:
        await guard.peek("login", **VERA)
        return pools(guard)[0].breaker

    assert run(breaker()) is run(breaker())
