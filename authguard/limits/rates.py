"""
How counts and periods are written: ``"5/15m"`` is five in any fifteen minutes.

A period is a whole number with a unit, ``s``, ``m``, ``h`` or ``d``. What stands here reads texts
and checks what limits are made of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from authguard.checks import shown
from authguard.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DAY_MS",
    "LARGEST_COUNT",
    "LARGEST_EXACT",
    "LONGEST_LIST",
    "LONGEST_PERIOD_MS",
    "MONTH",
    "SHORT_MS",
    "check_switch",
    "parse_lockout",
    "parse_period_ms",
    "parse_rate",
]

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

DAY_MS: Final = _UNITS_MS["d"]

#: A log up to an hour is short: it tells of what happens now, longer ones of the days before.
SHORT_MS: Final = _UNITS_MS["h"]

#: The period that only a calendar knows.
MONTH: Final = "1mo"

#: Ten years; a longer wait is a block, not a limit.
LONGEST_PERIOD_MS: Final = 3_650 * DAY_MS

#: What a counter can hold; it costs the same whatever it counts.
LARGEST_COUNT: Final = 1_000_000_000

#: Most periods of a list that rises.
LONGEST_LIST: Final = 32

#: Whole numbers up to here are exact in the server's Lua, which has doubles.
LARGEST_EXACT: Final = 2**53

_PERIOD: Final = re.compile(r"([1-9][0-9]{0,9})([smhd])", re.ASCII)
_RATE: Final = re.compile(r"([0-9]{1,10})/(.+)", re.ASCII | re.DOTALL)


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


def parse_rate(text: object, where: str, largest: int, *, months: bool = False) -> tuple[int, int]:
    """
    Read ``"COUNT/PERIOD"`` as the count and integer milliseconds.

    Args:
        text: What is written.
        where: The setting it stands in, for the error.
        largest: The highest count.
        months: ``1mo`` is a period too, of 31 days at most.

    Raises:
        ConfigurationError: AG005 or AG006.
    """
    match = _RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigurationError(
            "AG005", where, f"{shown(text)} is not a rate", "write COUNT/PERIOD, such as '5/15m'"
        )
    limit, period = int(match[1]), match[2]
    if months and period == MONTH:
        window_ms = 31 * DAY_MS
    elif "mo" in period:
        raise ConfigurationError(
            "AG006",
            where,
            f"{shown(period)} is not a period here",
            f"write '{MONTH}' for a month of the calendar, in a fixed_window alone",
        )
    else:
        window_ms = parse_period_ms(period, where)
    if not 1 <= limit <= largest:
        raise ConfigurationError(
            "AG005", where, f"{limit} is no possible count", f"take 1 to {largest}"
        )
    return limit, window_ms


def check_switch(value: object, where: str) -> None:
    """
    Refuse what is neither true nor false.

    Raises:
        ConfigurationError: AG005.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(
            "AG005", where, f"{shown(value)} is no switch", "write true or false"
        )


def parse_lockout(lockout: str | Sequence[str] | None, where: str) -> tuple[int, ...]:
    """
    Read one lockout, or a rising list of them, as integer milliseconds.

    Raises:
        ConfigurationError: AG006.
    """
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
    if len(lengths) > LONGEST_LIST:
        raise ConfigurationError(
            "AG006",
            f"{where}.lockout",
            f"{len(lengths)} lengths",
            f"write at most {LONGEST_LIST}; the last holds from then on",
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
