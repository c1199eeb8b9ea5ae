"""What the tests of the awaited guard share: a loop each, and waits that can be cancelled."""

from __future__ import annotations

import asyncio
import gc
import sys
import types
from typing import TYPE_CHECKING, Any, Final, TypeVar

from authguard import AsyncGuard
from tests.conftest import PATIENT_MS, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from authguard.stores.valkey_async import _Pool

T = TypeVar("T")

#: Who signs in; a documentation address (RFC 5737).
VERA: Final = {"account": "vera", "client": "192.0.2.7"}


def run(story: Coroutine[Any, Any, T], *, thorough: bool = False) -> T:
    """
    Run a story in a loop of its own; whatever the loop or Python complains of fails the test.

    Args:
        story: What happens.
        thorough: Collect garbage afterwards, so that what was left open complains now.
    """
    complaints: list[str] = []

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
        return await story

    hook, sys.unraisablehook = sys.unraisablehook, lambda what: complaints.append(str(what))
    try:
        told = asyncio.run(watched())
        if thorough:
            gc.collect()
    finally:
        sys.unraisablehook = hook
    assert complaints == []
    return told


def a_guard(url: Any, **settings: Any) -> AsyncGuard:
    """Make a guard; whoever makes it closes it."""
    usual: dict[str, Any] = {"secret": SECRET, "deadline_ms": PATIENT_MS}
    return AsyncGuard(url, **(usual | settings))


async def until(true: Callable[[], object]) -> None:
    """Wait in the running loop until something is so."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 (what is awaited may be a thread's doing)
            await asyncio.sleep(0.001)


def pools(guard: AsyncGuard) -> list[_Pool]:
    """Give the pools of the running loop."""
    return list(guard.store._loops[asyncio.get_running_loop()].pools.values())


@types.coroutine
def cancelled_at(
    coroutine: Coroutine[Any, Any, T], nth: int, *, as_it_wakes: bool = False
) -> Generator[Any, Any, T | None]:
    """
    Run what a task is made of; cancel the task at the nth thing that it waits for.

    Args:
        coroutine: The whole of the task.
        nth: Which wait, from 1; if there are fewer, nothing is cancelled.
        as_it_wakes: Cancel it when what it waits for has come and it has not gone on yet.
    """
    task = asyncio.current_task()
    assert task is not None
    waits, error = 0, None
    while True:
        try:
            waited = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration as end:
            return end.value
        waits, error = waits + 1, None
        if waits == nth:
            if as_it_wakes and waited is not None:
                waited.add_done_callback(lambda _: task.cancel())
            else:
                asyncio.get_running_loop().call_soon(task.cancel)
        try:
            yield waited
        except BaseException as thrown:  # noqa: BLE001 (handed on)
            error = thrown
