"""One algorithm by itself, keyed by any text."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, TypeVar

from authguard._core import calls
from authguard._engine import check_cost
from authguard.checks import is_unicode
from authguard.errors import InvalidInput

if TYPE_CHECKING:
    from authguard._core.keys import Binding, Shape
    from authguard._engine import Engine
    from authguard.decision import Cleared, Decision

__all__ = ["Limiter"]

T = TypeVar("T")


class Limiter:
    """One algorithm by itself; made by :meth:`authguard.Guard.limiter`."""

    def __init__(self, engine: Engine, shape: Shape) -> None:
        self._engine = engine
        self._shape = shape

    def hit(self, key: str, cost: int = 1, *, now_ms: int | None = None) -> Decision:
        """
        Count one call if the limit admits it.

        Raises:
            StoreUnavailable: If the store gave no clear verdict in time.
            ValueError: If the cost is no whole number from 1, or more than the limit.
        """
        check_cost(cost, self._shape)
        call = calls.acquire(
            self._bind(key),
            cost=cost,
            attempt_id=bytes(3) + secrets.token_bytes(2),
            now_ms=self._engine.now_ms(now_ms),
        )
        return self._run(call)

    def peek(self, key: str, cost: int = 1, *, now_ms: int | None = None) -> Decision:
        """Tell what :meth:`hit` would decide now; counts and writes nothing."""
        check_cost(cost, self._shape)
        now_ms = self._engine.now_ms(now_ms)
        return self._run(calls.peek(self._bind(key), cost=cost, now_ms=now_ms))

    def reset(self, key: str, *, now_ms: int | None = None) -> Cleared:
        """Forget what was counted for a key."""
        now_ms = self._engine.now_ms(now_ms)
        return self._run(calls.clear(self._bind(key), now_ms=now_ms))

    def _bind(self, key: str) -> Binding:
        if not isinstance(key, str) or not is_unicode(key):
            raise InvalidInput("key", "must be text of valid Unicode")
        return self._shape.bind(*({"account": of.of("key", key)} for of in self._engine.pseudonyms))

    def _run(self, call: calls.ScriptCall[T]) -> T:
        return self._engine.store.run(call)
