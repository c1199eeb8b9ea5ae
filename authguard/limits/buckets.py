"""The steady ones: a level that falls at a rate, reckoned in whole parts so that nothing drifts."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, ClassVar, Final

from authguard.checks import shown
from authguard.errors import ConfigurationError
from authguard.limits.base import Base
from authguard.limits.rates import LARGEST_COUNT, LARGEST_EXACT, LONGEST_PERIOD_MS, parse_rate

__all__ = ["LeakyBucket", "TokenBucket"]

#: The store keeps a bucket's period in six bytes.
_LONGEST_STORED_MS: Final = 2**48 - 1

#: A load of a thousandth makes a period a thousand times as long.
_LEAST_LOAD: Final = 1_000


def _parse_steady(rate: object, where: str) -> tuple[int, int]:
    """Read ``"RATE/PERIOD"`` as the fewest places in whole milliseconds that are the same rate."""
    places, period_ms = parse_rate(rate, where, LARGEST_COUNT)
    common = gcd(places, period_ms)
    return places // common, period_ms // common


def _check_holds(key: str, value: object, least: int, where: str) -> int:
    if type(value) is not int or not least <= value <= LARGEST_COUNT:
        raise ConfigurationError(
            "AG005",
            f"{where}.{key}",
            f"{shown(value)} is no possible {key}",
            f"take a whole number, {least} to {LARGEST_COUNT}",
        )
    return value


def _check_exact(places: int, rate: int, period_ms: int, where: str) -> None:
    longest_ms = period_ms * _LEAST_LOAD
    if places * longest_ms > LARGEST_EXACT or longest_ms > _LONGEST_STORED_MS:
        raise ConfigurationError(
            "AG005",
            where,
            f"{places} places can't be reckoned with exactly at this rate",
            "take fewer, or a rate of a shorter period",
        )
    if places * period_ms > rate * LONGEST_PERIOD_MS:
        raise ConfigurationError(
            "AG005",
            where,
            f"{places} places drain in more than ten years at this rate",
            "take fewer, or a higher rate",
        )


class _Bucket(Base):
    """What both are: ``limit`` places, of which ``rate`` drain in ``period_ms``."""

    __slots__ = ()

    can_scale: ClassVar[bool] = True
    lockout_ms: ClassVar[tuple[int, ...]] = ()
    if TYPE_CHECKING:
        rate: int
        period_ms: int

    def _set(self, rate: object, key: str, holds: object, *, least: int, where: str) -> None:
        """Read its rate and what it holds, which it keeps as ``key``."""
        set_once = object.__setattr__
        places, period_ms = _parse_steady(rate, where)
        beside = where.removesuffix(f".{self.algorithm}")
        set_once(self, key, _check_holds(key, holds, least, beside))
        _check_exact(self.limit, places, period_ms, where)
        set_once(self, "rate", places)
        set_once(self, "period_ms", period_ms)

    @property
    def window_ms(self) -> int:
        """The time in which a full one drains."""
        return -(-self.limit * self.period_ms // self.rate)

    def largest_cost(self, *, reserved: bool = False) -> int | None:  # noqa: ARG002 (as others)
        """Give what it holds."""
        return self.limit

    def numbers(self) -> list[Any]:
        """Give what it holds, and its rate as places in so many milliseconds."""
        return [self.limit, self.rate, self.period_ms]


@dataclass(frozen=True, slots=True, init=False)
class TokenBucket(_Bucket):
    """
    A steady rate with bursts: each admitted place takes a token, and ``burst`` can be saved up.

    In any time ``t`` it admits at most ``burst + rate * t``, and to an idle caller the burst at
    once. ``retry_after`` is when exactly that cost is there. A success gives back its tokens less
    what has been refilled since.

    Args:
        rate: ``"RATE/PERIOD"``, such as ``"5/1s"``; refilled evenly, one each 200 ms.
        burst: Tokens of a full bucket, and so the most that one attempt can cost.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    rate: int
    period_ms: int
    burst: int

    algorithm: ClassVar[str] = "token_bucket"

    def __init__(self, rate: str, *, burst: int, where: str = "TokenBucket") -> None:
        self._set(rate, "burst", burst, least=1, where=where)

    @property
    def limit(self) -> int:
        """The burst."""
        return self.burst

    def _like(self, text: str, where: str) -> TokenBucket:
        return TokenBucket(text, burst=self.burst, where=where)


@dataclass(frozen=True, slots=True, init=False)
class LeakyBucket(_Bucket):
    """
    Shapes work to a steady rate: an admitted attempt is told how long to wait before it acts.

    The first acts at once, the next one each a turn later; ``queue`` of them can be waiting, and
    then it refuses. A turn that was given stays given, also after a success.

    Args:
        rate: ``"RATE/PERIOD"``, such as ``"10/1s"``: a turn each 100 ms.
        queue: How many can wait for their turns, from 0: only as many as the rate.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    rate: int
    period_ms: int
    queue: int

    algorithm: ClassVar[str] = "leaky_bucket"

    def __init__(self, rate: str, *, queue: int, where: str = "LeakyBucket") -> None:
        self._set(rate, "queue", queue, least=0, where=where)

    @property
    def limit(self) -> int:
        """The queue, and the one that leaves."""
        return self.queue + 1

    def _like(self, text: str, where: str) -> LeakyBucket:
        return LeakyBucket(text, queue=self.queue, where=where)
