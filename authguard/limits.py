"""
The algorithms a limit can use: frozen values, checked once when they are made.

Counts and periods are written ``"COUNT/PERIOD"``; a period is a whole number with a unit,
``s``, ``m``, ``h`` or ``d``: ``"5/15m"`` is five in any fifteen minutes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from authguard.checks import shown
from authguard.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SlidingLog", "parse_period_ms"]

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PERIOD = re.compile(r"([1-9][0-9]{0,9})([smhd])", re.ASCII)
_RATE = re.compile(r"([0-9]{1,10})/(.+)", re.ASCII | re.DOTALL)

#: Ten years; a longer wait is a block, not a limit.
LONGEST_PERIOD_MS = 3_650 * _UNITS_MS["d"]

#: A log is exact and costs 10 bytes an attempt; beyond this a counter is the right tool.
LARGEST_LOG = 100_000


def parse_period_ms(text: object, where: str) -> int:
    """
    Read a period such as ``"15m"`` as integer milliseconds.

    Args:
        text: A whole number with one unit: ``s``, ``m``, ``h`` or ``d``.
        where: The setting it stands in, for the error.

    Raises:
        ConfigurationError: AG006, if it is anything else, or longer than ten years.
    """
    match = _PERIOD.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigurationError(
            "AG006",
            where,
            f"{shown(text)} is not a period",
            "write a whole number and one unit (s, m, h, d), such as '15m'",
        )
    period_ms = int(match[1]) * _UNITS_MS[match[2]]
    if period_ms > LONGEST_PERIOD_MS:
        raise ConfigurationError(
            "AG006",
            where,
            f"{shown(text)} is longer than ten years",
            "take a period of 3650d or less",
        )
    return period_ms


def _parse_rate(text: object, where: str) -> tuple[int, int]:
    match = _RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigurationError(
            "AG005", where, f"{shown(text)} is not a rate", "write COUNT/PERIOD, such as '5/15m'"
        )
    return int(match[1]), parse_period_ms(match[2], where)


def _parse_lockout(lockout: str | Sequence[str] | None, where: str) -> tuple[int, ...]:
    if lockout is None:
        return ()
    lengths = (lockout,) if isinstance(lockout, str) else lockout
    if not isinstance(lengths, list | tuple) or not lengths:
        raise ConfigurationError(
            "AG006",
            f"{where}.lockout",
            f"{shown(lockout)} is neither a length nor a list of lengths",
            "write '15m', or a rising list such as ['15m', '1h', '24h']",
        )
    lockout_ms = tuple(parse_period_ms(length, f"{where}.lockout") for length in lengths)
    if list(lockout_ms) != sorted(lockout_ms):
        raise ConfigurationError(
            "AG006",
            f"{where}.lockout",
            "the lengths fall",
            "write them rising, the shortest first",
        )
    return lockout_ms


@dataclass(frozen=True, slots=True, init=False)
class SlidingLog:
    """
    At most ``limit`` admitted attempts in any window of that length, to the millisecond.

    An attempt made at ``t`` counts while ``now < t + window``; at exactly ``t + window`` its
    place is free. A success gives its place back. At most ``limit`` entries of 10 bytes are
    kept, whatever is thrown at it.

    Args:
        rate: ``"COUNT/PERIOD"``, such as ``"5/15m"``; COUNT from 1 to 100,000.
        lockout: The reservation that fills the log locks it for this long; refused tries don't
            move the end, and when it has passed the log is empty. A rising list climbs from one
            lockout to the next and starts over after a quiet time: the longest of the list, or
            the window if that is longer.
        forgive: A success erases its own client's earlier failures. ``None``: where the limit
            counts by account or device and its window is an hour or less.
        count_refused: Count refused attempts too, so that a hammering client stays out until it
            stops. The log still holds at most ``limit`` entries.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    limit: int
    window_ms: int
    lockout_ms: tuple[int, ...]
    forgive: bool | None
    count_refused: bool

    algorithm: ClassVar[str] = "sliding_log"

    def __init__(
        self,
        rate: str,
        *,
        lockout: str | Sequence[str] | None = None,
        forgive: bool | None = None,
        count_refused: bool = False,
        where: str = "SlidingLog",
    ) -> None:
        limit, window_ms = _parse_rate(rate, where)
        if not 1 <= limit <= LARGEST_LOG:
            raise ConfigurationError(
                "AG005", where, f"{limit} is no possible count", f"take 1 to {LARGEST_LOG}"
            )
        beside = where.removesuffix(f".{self.algorithm}")
        for name, value in (("forgive", forgive), ("count_refused", count_refused)):
            if not isinstance(value, bool) and (value is not None or name != "forgive"):
                raise ConfigurationError(
                    "AG005",
                    f"{beside}.{name}",
                    f"{shown(value)} is no switch",
                    "write true or false",
                )
        set_once = object.__setattr__
        set_once(self, "limit", limit)
        set_once(self, "window_ms", window_ms)
        set_once(self, "lockout_ms", _parse_lockout(lockout, beside))
        set_once(self, "forgive", forgive)
        set_once(self, "count_refused", count_refused)

    def forgives(self, by: Sequence[str]) -> bool:
        """Tell whether a success erases its client's failures when the limit counts ``by`` this."""
        if self.forgive is not None:
            return self.forgive
        owned = "account" in by or "device" in by
        return owned and self.window_ms <= _UNITS_MS["h"]

    def spec(self, by: Sequence[str], *, forgiving: bool = True) -> list[object]:
        """Describe the limit to its Lua (the header of ``sliding_log.lua``)."""
        flags = int(self.count_refused) + 2 * int(forgiving and self.forgives(by))
        return [self.algorithm, self.limit, self.window_ms, flags, list(self.lockout_ms)]
