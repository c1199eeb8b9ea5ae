"""One algorithm by itself, keyed by any text."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from authguard._core import calls
from authguard._core.keys import Shape
from authguard._engine import check_cost
from authguard.checks import is_unicode
from authguard.errors import InvalidInput

if TYPE_CHECKING:
    from authguard._core.keys import Binding
    from authguard._engine import Engine
    from authguard.decision import Cleared, Decision
    from authguard.policy import Policy

__all__ = ["Limiter"]


class Limiter:
    """One algorithm by itself; made by :meth:`authguard.Guard.limiter`."""

    def __init__(self, engine: Engine, policy: Policy) -> None:
        (limit,) = policy.limits
        self._engine = engine
        self._part, self._value_part = limit.by[0], limit.member_part
        self._shape = Shape.of(policy, frozenset({*policy.parts}), secrets=len(engine.pseudonyms))

    def hit(
        self, key: str, cost: int = 1, *, value: str | None = None, now_ms: int | None = None
    ) -> Decision:
        """
        Count one call if the limit admits it.

        Args:
            key: What is counted, such as an API key.
            cost: Places it takes, a whole number from 1.
            value: What a ``Distinct`` tells apart: with ``Distinct("account", "20/1h")`` and a
                client as the key, the account.
            now_ms: A replay's clock, in milliseconds since the epoch; never from a request.

        Raises:
            StoreUnavailable: If the store gave no clear verdict in time.
            InvalidInput: If the key or the value can't be used.
            ValueError: If the cost is no whole number from 1, or more than the limit.
        """
        check_cost(cost, self._shape)
        call = calls.acquire(
            self._bind(key, value, needed=True),
            cost=cost,
            attempt_id=bytes(3) + secrets.token_bytes(2),
            now_ms=self._engine.now_ms(now_ms),
        )
        return self._engine.store.run(call)

    def peek(
        self, key: str, cost: int = 1, *, value: str | None = None, now_ms: int | None = None
    ) -> Decision:
        """Tell what :meth:`hit` would decide now; counts and writes nothing."""
        check_cost(cost, self._shape)
        call = calls.peek(
            self._bind(key, value, needed=True), cost=cost, now_ms=self._engine.now_ms(now_ms)
        )
        return self._engine.store.run(call)

    def reset(self, key: str, *, now_ms: int | None = None) -> Cleared:
        """Forget what was counted for a key."""
        call = calls.clear(self._bind(key, None, needed=False), now_ms=self._engine.now_ms(now_ms))
        return self._engine.store.run(call)

    def _bind(self, key: str, value: str | None, *, needed: bool) -> Binding:
        named = {self._part: ("key", _text("key", key))}
        if self._value_part is not None and needed and value is None:
            raise InvalidInput("value", "is missing: it is what a Distinct tells apart")
        if self._value_part is not None and value is not None:
            named[self._value_part] = ("value", _text("value", value))
        elif value is not None:
            raise InvalidInput("value", "is for a Distinct, which tells values apart")
        return self._shape.bind(
            *(
                {part: each.of(*text) for part, text in named.items()}
                for each in self._engine.pseudonyms
            )
        )


def _text(field: str, text: object) -> str:
    if not isinstance(text, str) or not is_unicode(text):
        raise InvalidInput(field, "must be text of valid Unicode")
    return text
