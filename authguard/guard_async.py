"""
The guard for asyncio: the same methods as :class:`authguard.Guard`, with ``await``.

::

    guard = AsyncGuard("valkey://127.0.0.1:6379/0", secret=SECRET)
    async with guard.attempt("login", account=name, client=address) as attempt:
        if await asyncio.to_thread(passwords.verify, stored, password):
            await attempt.succeed()

A task may be cancelled at every ``await``: what was charged stays a counted failure, the connection
in use is dropped, and nothing is sent twice. ``resolve`` and ``tier`` are plain functions, and run
in the loop: look an account up before and pass its :class:`authguard.AccountKey`, if that waits.
"""

from __future__ import annotations

from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, cast

from authguard._colours import awaited
from authguard._guard_steps import GuardSteps
from authguard.attempt import AsyncAttempt, Reserving
from authguard.limiter import AsyncLimiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard._core.steps import Steps
    from authguard._guard_steps import Reserved
    from authguard._notes import AsyncNotes
    from authguard.limits import Algorithm
    from authguard.one_time import AsyncOneTime
    from authguard.ops.check import CheckReport
    from authguard.stores.base import AsyncStore

__all__ = ["AsyncGuard"]

P = ParamSpec("P")


def _admitted(
    steps: Callable[Concatenate[Any, P], Steps[Reserved]],
) -> Callable[Concatenate[Any, P], Reserving]:
    """Make a method that reserves; what it gives is to be awaited, or entered."""
    reserve = awaited(steps)

    @wraps(reserve)
    async def admitted(self: AsyncGuard, /, *args: P.args, **settings: P.kwargs) -> AsyncAttempt:
        return AsyncAttempt(self._engine, await reserve(self, *args, **settings))

    @wraps(reserve)
    def run(self: AsyncGuard, /, *args: P.args, **settings: P.kwargs) -> Reserving:
        return Reserving(admitted(self, *args, **settings))

    return run


class AsyncGuard(GuardSteps):
    """
    Guards actions in asyncio; arguments, methods and errors are those of :class:`authguard.Guard`.

    One guard serves one process; its connections belong to the loop that runs, so a second loop
    gets its own.
    """

    attempt = _admitted(GuardSteps._attempt)
    message = _admitted(GuardSteps._message)
    message_over = awaited(GuardSteps._message_over)
    peek = awaited(GuardSteps._peek)

    clear = awaited(GuardSteps._clear)
    pardon = awaited(GuardSteps._pardon)
    recover = awaited(GuardSteps._recover)
    usage = awaited(GuardSteps._usage)
    block = awaited(GuardSteps._block)
    unblock = awaited(GuardSteps._unblock)
    override = awaited(GuardSteps._override)
    lift_override = awaited(GuardSteps._lift_override)
    load = awaited(GuardSteps._load)
    current_load = awaited(GuardSteps._current_load)
    load_until_ms = awaited(GuardSteps._load_until_ms)
    now_ms = awaited(GuardSteps._now_ms)

    @cached_property
    def one_time(self) -> AsyncOneTime:
        """Issues and takes codes and links."""
        from authguard.one_time import AsyncOneTime  # noqa: PLC0415 (only if it is used)

        return AsyncOneTime(self._engine)

    @cached_property
    def notes(self) -> AsyncNotes:
        """Keeps what operators note beside a block."""
        from authguard._notes import AsyncNotes  # noqa: PLC0415 (only if it is used)

        return AsyncNotes(self._engine, self._named)

    @property
    def store(self) -> AsyncStore:
        """What runs its calls."""
        return cast("AsyncStore", self._engine.store)

    @staticmethod
    def _store_of(url: str, deadline_ms: int) -> AsyncStore:
        from authguard.stores.valkey_async import AsyncValkeyStore  # noqa: PLC0415 (if it is used)

        return AsyncValkeyStore(url, deadline_ms=deadline_ms)

    def limiter(self, limit: Algorithm, *, name: str | None = None) -> AsyncLimiter:
        """Use one algorithm by itself; see :meth:`authguard.Guard.limiter`."""
        return AsyncLimiter(self._engine, self._limited(limit, name))

    async def check(self) -> CheckReport:
        """Look the store, the secret and the policies over; see :meth:`authguard.Guard.check`."""
        from authguard.ops.check import acheck  # noqa: PLC0415 (only if it is used)

        return await acheck(self)

    async def close(self) -> None:
        """Let the store's connections go."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
