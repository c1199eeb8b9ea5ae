"""Each library's limiters under one face, with the numbers set alike, to be asked in turn."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from limits import RateLimitItemPerSecond
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES
from throttled import Throttled, per_duration
from throttled.store import RedisStore

from authguard import (
    Denied,
    FixedWindow,
    LeakyBucket,
    SlidingLog,
    SlidingWindowCounter,
    TokenBucket,
)

if TYPE_CHECKING:
    from authguard import Guard
    from authguard.decision import Decision
    from authguard.limiter import Limiter

__all__ = [
    "LIMIT",
    "LIMITS",
    "OURS",
    "THROTTLED",
    "WINDOW",
    "Asks",
    "Contender",
    "InTurn",
    "LimitsPy",
    "Login",
    "ThrottledPy",
    "contenders",
]

#: The numbers where nothing else is said: so many in so many seconds.
LIMIT, WINDOW = 10, 2
OURS: Final = "authguard"
LIMITS: Final = "limits"
THROTTLED: Final = "throttled-py"
SERVER, SERVER_SECONDS, CLIENT = "server", "server, whole seconds", "client"


class Asks(Protocol):
    """A limiter under one library's own interface."""

    def ask(self, key: str) -> bool:
        """Count one call; tell whether it is admitted."""


class Tells(Asks, Protocol):
    """One that also tells how long to wait."""

    def told(self, key: str) -> float:
        """Give the seconds to wait that the library tells of the call that was refused last."""


class Ours:
    """One of our algorithms alone."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._last: Decision

    def ask(self, key: str) -> bool:
        """Count one call."""
        self._last = self._limiter.hit(key)
        return self._last.allowed

    def told(self, key: str) -> float:  # noqa: ARG002 (as others)
        """Give the wait of the last answer."""
        return self._last.retry_after_ms / 1000


class LimitsPy:
    """A strategy of ``limits``."""

    def __init__(self, url: str, strategy: str, limit: int, window: int) -> None:
        self._limiter = STRATEGIES[strategy](storage_from_string(url))
        self._item = RateLimitItemPerSecond(limit, window)

    def ask(self, key: str) -> bool:
        """Count one call."""
        return self._limiter.hit(self._item, key)

    def told(self, key: str) -> float:
        """Give the time until the window is reset."""
        # What it has to say of waiting, and what Flask-Limiter makes its Retry-After of.
        return self._limiter.get_window_stats(self._item, key).reset_time - time.time()


class ThrottledPy:
    """An algorithm of ``throttled-py``."""

    def __init__(self, url: str, using: str, limit: int, window: int, burst: int) -> None:
        server = url.replace("valkey://", "redis://")
        quota = per_duration(timedelta(seconds=window), limit, burst)
        self._throttled = Throttled(using=using, quota=quota, store=RedisStore(server=server))
        self._last: Any = None

    def ask(self, key: str) -> bool:
        """Count one call."""
        self._last = self._throttled.limit(key)
        return not self._last.limited

    def told(self, key: str) -> float:  # noqa: ARG002 (as others)
        """Give the wait of the last answer."""
        return float(self._last.state.retry_after)


class Login:
    """Ours over three limits: one call, all or none."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def ask(self, key: str) -> bool:
        """Count one call."""
        try:
            # As many clients as callers: a log that all share would be long for us alone.
            number = key.rpartition(" ")[2]
            self._guard.attempt("three", account=key, client=f"2001:db8:{number}::1")
        except Denied:
            return False
        return True


class InTurn:
    """The others over several limits: one after another, up to the first that refuses."""

    def __init__(self, *limiters: Asks) -> None:
        self._limiters = limiters

    def ask(self, key: str) -> bool:
        """Count one call."""
        return all(it.ask(f"{number} {key}") for number, it in enumerate(self._limiters))


@dataclass(frozen=True, slots=True)
class Contender:
    """
    One library's algorithm.

    Attributes:
        library: Whose.
        algorithm: As the library calls it.
        kind: Which of ours it is to be compared with.
        definition: What it says it does (:data:`bench.judges.JUDGES`).
        clock: Whose clock decides.
        asks: How it is asked.
    """

    library: str
    algorithm: str
    kind: str
    definition: str
    clock: str
    asks: Tells

    @property
    def name(self) -> str:
        """Tell it from the others."""
        return f"{self.library} {self.algorithm}"

    def ask(self, key: str) -> bool:
        """Count one call under a key of its own: some libraries' strategies share theirs."""
        return self.asks.ask(f"{self.algorithm} {key}")

    def told(self, key: str) -> float:
        """Give the seconds to wait that it tells of the call that was refused last."""
        return self.asks.told(f"{self.algorithm} {key}")


def contenders(
    guard: Guard, url: str, *, limit: int = LIMIT, window: int = WINDOW, burst: int | None = None
) -> list[Contender]:
    """Make all of them, with the same numbers; ``burst`` is the limit where nothing is said."""
    burst = limit if burst is None else burst
    rate = f"{limit}/{window}s"

    def ours(kind: str, definition: str, algorithm: Any) -> Contender:
        limiter = Ours(guard.limiter(algorithm))
        return Contender(OURS, algorithm.algorithm, kind, definition, SERVER, limiter)

    def of_limits(strategy: str, kind: str, definition: str, clock: str) -> Contender:
        asks = LimitsPy(url, strategy, limit, window)
        return Contender(LIMITS, strategy, kind, definition, clock, asks)

    def of_throttled(using: str, kind: str, definition: str, clock: str) -> Contender:
        asks = ThrottledPy(url, using, limit, window, burst)
        return Contender(THROTTLED, using, kind, definition, clock, asks)

    first = "from the first ask"
    return [
        ours("log", "log", SlidingLog(rate)),
        of_limits("moving-window", "log", "log", CLIENT),
        ours("fixed window", "fixed", FixedWindow(rate)),
        of_limits("fixed-window", "fixed window", f"fixed, {first}", SERVER),
        of_throttled("fixed_window", "fixed window", "fixed", CLIENT),
        ours("counter", "counter", SlidingWindowCounter(rate)),
        of_limits("sliding-window-counter", "counter", f"counter, {first}", SERVER),
        of_throttled("sliding_window", "counter", "counter", CLIENT),
        ours("token bucket", "bucket", TokenBucket(rate, burst=burst)),
        of_throttled("token_bucket", "token bucket", "bucket", SERVER_SECONDS),
        of_throttled("gcra", "token bucket", "bucket", SERVER),
        ours("leaky bucket", "bucket", LeakyBucket(rate, queue=burst - 1)),
        of_throttled("leaking_bucket", "leaky bucket", "bucket", SERVER_SECONDS),
    ]
