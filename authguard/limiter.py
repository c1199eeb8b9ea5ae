"""One algorithm by itself, keyed by any text."""

from __future__ import annotations

import os
from functools import lru_cache
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
        self._shape = _shape_of(policy, len(engine.pseudonyms))

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
        pseudonyms, at_ms = self._named(key, value), self._engine.now_ms(now_ms)
        known = self._engine.known_refusal(self._shape, pseudonyms[0], cost, at_ms)
        if known is not None:
            return known
        bound = self._engine.bind(self._shape, pseudonyms)
        places = Places(bound, bytes(3) + os.urandom(2), cost, knows_client=False)
        return (yield from self._engine.reserve(places, at_ms))

    def _peek(
        self, key: str, cost: int = 1, *, value: str | None = None, now_ms: int | None = None
    ) -> Steps[Decision]:
        """Tell what :meth:`hit` would decide now; counts and writes nothing."""
        check_cost(cost, self._shape)
        bound = self._engine.bind(self._shape, self._named(key, value))
        return (yield from groups.peek(bound, cost=cost, now_ms=self._engine.now_ms(now_ms)))

    @unlocking
    def _reset(self, key: str, *, now_ms: int | None = None) -> Steps[Cleared]:
        """Forget what was counted for a key."""
        bound = self._engine.bind(self._shape, self._named(key, None, whole=False))
        return (yield from groups.clear(bound, now_ms=self._engine.now_ms(now_ms)))

    def _named(self, key: str, value: str | None, *, whole: bool = True) -> list[dict[str, bytes]]:
        """Give the pseudonyms by secret; not the whole of them names no value to tell apart."""
        named = {self._part: ("key", _text("key", key))}
        if self._value_part is not None and whole and value is None:
            raise InvalidInput("value", "is missing: it is what a Distinct tells apart")
        if self._value_part is not None and value is not None:
            named[self._value_part] = ("value", _text("value", value))
        elif value is not None:
            raise InvalidInput("value", "is for a Distinct, which tells values apart")
        return [
            {part: each.of(*text) for part, text in named.items()}
            for each in self._engine.pseudonyms
        ]


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


@lru_cache(maxsize=256)
def _shape_of(policy: Policy, secrets: int) -> Shape:
    """Give the same for equal limiters: some apps make one for each call."""
    return Shape.of(policy, frozenset({*policy.parts}), secrets=secrets)


def _text(field: str, text: object) -> str:
    if not isinstance(text, str) or not is_unicode(text):
        raise InvalidInput(field, "must be text of valid Unicode")
    return text
