"""An attempt as an app holds it: a counted failure, until it is told otherwise."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Literal, Self

from authguard._colours import awaited, blocking
from authguard.errors import HashingUnavailable, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from authguard._core.steps import Steps
    from authguard._engine import Engine
    from authguard._guard_steps import Reserved

__all__ = ["AsyncAttempt", "Attempt", "AttemptSteps", "Reserving"]

_log = logging.getLogger("authguard")


class AttemptSteps:
    """
    An admitted attempt: a counted failure, until ``succeed`` says otherwise.

    Attributes:
        account: The key of the account that was counted: what ``resolve`` gave, or the name in
            its one spelling. None if no account was named.
        decision: What the limits said when they admitted it.
        device: The known device that it counts by; None if there is none, or it is worn out.
        settled: Whether the reservation has been given back in the store.
        unlocked: Locks that this very attempt had set and lifted again.
    """

    def __init__(self, engine: Engine, reserved: Reserved) -> None:
        self.account = reserved.account
        self.decision = reserved.decision
        self.device = reserved.device
        self.settled = False
        self.unlocked = 0
        self._engine = engine
        self._places = reserved.places
        self._passed_ms = reserved.now_ms

    @property
    def action(self) -> str:
        """The action it belongs to."""
        return self.decision.action

    @property
    def succeeded(self) -> bool:
        """Whether ``succeed`` was called."""
        return self._places.state == "succeeded"

    @property
    def pending(self) -> bool:
        """Whether nothing has been said of it yet; left so, it is a counted failure."""
        return self._places.state == "reserved"

    def _succeed(self) -> Steps[None]:
        """
        Say that the credential was proved: the reservation is given back.

        In short logs by account the failures of the same client before it are forgiven, and a
        lock that this very attempt set is lifted. A second call changes nothing. If the store is
        away the success stands, the reservation stays counted, and a warning is logged.
        """
        return self._leave("succeeded")

    def _release(self) -> Steps[None]:
        """
        Say that the credential was never looked at: only the own reservation is given back.

        For a check that could not take place, such as no free hash slot. Never call it after
        anything about the credential was learnt: that would be a free guess.
        """
        return self._leave("released")

    def _leave(self, into: Literal["succeeded", "released"]) -> Steps[None]:
        if not self.pending:
            return
        steps = self._places.leave(into, self._engine.now_ms(self._passed_ms))
        try:
            cleared = yield from steps
        except StoreUnavailable as error:
            _log.warning("%s: settle failed (%s); the entry stays", self.action, error.reason)
            return
        finally:  # cancelled or unanswered, it may have been given back
            self._engine.refusals.forget(self._places.bound)
        if cleared is not None and not self.decision.degraded:
            self.settled = True
            self.unlocked = cleared.locks


class Attempt(AttemptSteps):
    """
    An admitted attempt: a counted failure, until :meth:`succeed` says otherwise.

    Attributes:
        account: The key of the account that was counted: what ``resolve`` gave, or the name in
            its one spelling. None if no account was named.
        decision: What the limits said when they admitted it.
        device: The known device that it counts by; None if there is none, or it is worn out.
        settled: Whether the reservation has been given back in the store.
        unlocked: Locks that this very attempt had set and lifted again.
    """

    succeed = blocking(AttemptSteps._succeed)
    release = blocking(AttemptSteps._release)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """
        Leave what has not succeeded a counted failure.

        Save where ``HashingUnavailable`` ends the block: the machine was too busy to look at the
        password, and that must lock nobody out, so the attempt is released.
        """
        if _is_hashing_unavailable(error):
            self.release()


class AsyncAttempt(AttemptSteps):
    """The same with ``await``; see :class:`Attempt`."""

    succeed = awaited(AttemptSteps._succeed)
    release = awaited(AttemptSteps._release)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave what has not succeeded a counted failure, as :class:`Attempt` does."""
        if _is_hashing_unavailable(error):
            await self.release()


def _is_hashing_unavailable(error: BaseException | None) -> bool:
    """Tell whether it is nothing else, in a group of errors either, as a TaskGroup raises one."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(HashingUnavailable)[1] is None
    return isinstance(error, HashingUnavailable)


class Reserving(Coroutine[Any, Any, AsyncAttempt]):
    """
    An attempt that is being made: ``await`` it, or enter it with ``async with``.

    ::

        attempt = await guard.attempt("login", account=name, client=address)

        async with guard.attempt("login", account=name, client=address) as attempt:
            ...
    """

    def __init__(self, reserve: Coroutine[Any, Any, AsyncAttempt]) -> None:
        self.__name__ = self.__qualname__ = getattr(reserve, "__name__", "attempt")  # for asyncio
        self._reserve = reserve
        self._attempt: AsyncAttempt | None = None

    def __await__(self) -> Generator[Any, Any, AsyncAttempt]:
        return self._reserve.__await__()

    def send(self, value: Any, /) -> Any:
        """Go on, as any coroutine: it may be the whole of a task."""
        return self._reserve.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error."""
        return self._reserve.throw(*error)

    def close(self) -> None:
        """End it where it is."""
        self._reserve.close()

    async def __aenter__(self) -> AsyncAttempt:
        self._attempt = await self._reserve
        return self._attempt

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """As :class:`AsyncAttempt` does."""
        if self._attempt is not None:
            await self._attempt.__aexit__(kind, error, trace)
