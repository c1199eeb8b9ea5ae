"""One algorithm by itself, keyed by any text."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from authguard._colours import awaited, blocking
from authguard._core import groups
from authguard._core.groups import Places
from authguard._core.keys import Shape
from authguard._core.refusals import unlocking
from authguard._engine import check_cost
from authguard.checks import is_unicode
from authguard.errors import InvalidInput

if TYPE_CHECKING:
    from authguard._core.groups import Bound
    from authguard._core.steps import Steps
    from authguard._engine import Engine
    from authguard.decision import Cleared, Decision
    from authguard.policy import Policy

__all__ = ["AsyncLimiter", "Limiter", "LimiterSteps"]


class LimiterSteps:
    """The steps of both faces, :class:`Limiter` and :class:`AsyncLimiter`."""

    def __init__(self, engine: Engine, policy: Policy) -> None:
        (limit,) = policy.limits
        self._engine = engine
        self._part, self._value_part = limit.by[0], limit.member_part
        self._shape = Shape.of(policy, frozenset({*policy.parts}), secrets=len(engine.pseudonyms))

    def _hit(
        self, key: str, cost: int = 1, *, value: str | None = None, now_ms: int | None = None
    ) -> Steps[Decision]:
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
        bound = self._bind(key, value, needed=True)
        places = Places(bound, bytes(3) + secrets.token_bytes(2), cost, knows_client=False)
        return (yield from self._engine.reserve(places, self._engine.now_ms(now_ms)))

    def _peek(
        self, key: str, cost: int = 1, *, value: str | None = None, now_ms: int | None = None
    ) -> Steps[Decision]:
        """Tell what :meth:`hit` would decide now; counts and writes nothing."""
        check_cost(cost, self._shape)
        bound = self._bind(key, value, needed=True)
        return (yield from groups.peek(bound, cost=cost, now_ms=self._engine.now_ms(now_ms)))

    @unlocking
    def _reset(self, key: str, *, now_ms: int | None = None) -> Steps[Cleared]:
        """Forget what was counted for a key."""
        bound = self._bind(key, None, needed=False)
        return (yield from groups.clear(bound, now_ms=self._engine.now_ms(now_ms)))

    def _bind(self, key: str, value: str | None, *, needed: bool) -> Bound:
        named = {self._part: ("key", _text("key", key))}
        if self._value_part is not None and needed and value is None:
            raise InvalidInput("value", "is missing: it is what a Distinct tells apart")
        if self._value_part is not None and value is not None:
            named[self._value_part] = ("value", _text("value", value))
        elif value is not None:
            raise InvalidInput("value", "is for a Distinct, which tells values apart")
        return self._engine.bind(
            self._shape,
            [
                {part: each.of(*text) for part, text in named.items()}
                for each in self._engine.pseudonyms
            ],
        )


class Limiter(LimiterSteps):
    """One algorithm by itself; made by :meth:`authguard.Guard.limiter`."""

    hit = blocking(LimiterSteps._hit)
    peek = blocking(LimiterSteps._peek)
    reset = blocking(LimiterSteps._reset)


class AsyncLimiter(LimiterSteps):
    """The same with ``await``; made by :meth:`authguard.AsyncGuard.limiter`."""

    hit = awaited(LimiterSteps._hit)
    peek = awaited(LimiterSteps._peek)
    reset = awaited(LimiterSteps._reset)


def _text(field: str, text: object) -> str:
    if not isinstance(text, str) or not is_unicode(text):
        raise InvalidInput(field, "must be text of valid Unicode")
    return text
