"""
The algorithms a limit can use: frozen values, checked once when they are made.

Counts and periods are written ``"COUNT/PERIOD"``; a period is a whole number with a unit,
``s``, ``m``, ``h`` or ``d``: ``"5/15m"`` is five in any fifteen minutes.

All have ``limit`` (what a verdict shows), ``window_ms``, ``lockout_ms`` (``()`` where none) and
``spec``, which describes them to their Lua: ``forgiving`` where a settle is a proven success,
``reserved`` where the last places are not the attempt's to use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from authguard.checks import shown
from authguard.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Algorithm",
    "Block",
    "Conversion",
    "Cooldown",
    "Distinct",
    "FixedWindow",
    "SlidingLog",
    "heeds_pardon",
    "parse_period_ms",
]

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

#: A log up to an hour is short: it tells of what happens now, longer ones of the days before.
SHORT_MS = _UNITS_MS["h"]
_PERIOD = re.compile(r"([1-9][0-9]{0,9})([smhd])", re.ASCII)
_RATE = re.compile(r"([0-9]{1,10})/(.+)", re.ASCII | re.DOTALL)
_SHARE = re.compile(r"([0-9]{1,4})/([0-9]{1,4})", re.ASCII)

#: Ten years; a longer wait is a block, not a limit.
LONGEST_PERIOD_MS = 3_650 * _UNITS_MS["d"]

#: A log is exact and costs 10 bytes an attempt; beyond this a counter is the right tool.
LARGEST_LOG = 100_000

#: What a counter can hold; it costs the same whatever it counts.
LARGEST_COUNT = 1_000_000_000

#: Different values that a log of them holds; each attempt looks through all.
LARGEST_DISTINCT = 1_000

#: Codes that a share is reckoned from.
LARGEST_SAMPLE = 200

#: Waits of a cooldown's list.
LONGEST_WAITS = 32


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


def heeds_pardon(by: Sequence[str]) -> bool:
    """
    Tell whether a sliding log by these parts is one of many of an account, one for each client.

    Nobody knows them all, so an operator's unlock leaves a mark that they heed (``pardon.lua``).
    """
    return "account" in by and not {"client", "network"}.isdisjoint(by)


def _parse_rate(text: object, where: str, largest: int) -> tuple[int, int]:
    match = _RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigurationError(
            "AG005", where, f"{shown(text)} is not a rate", "write COUNT/PERIOD, such as '5/15m'"
        )
    limit, window_ms = int(match[1]), parse_period_ms(match[2], where)
    if not 1 <= limit <= largest:
        raise ConfigurationError(
            "AG005", where, f"{limit} is no possible count", f"take 1 to {largest}"
        )
    return limit, window_ms


def _check_switch(value: object, where: str) -> None:
    if not isinstance(value, bool):
        raise ConfigurationError(
            "AG005", where, f"{shown(value)} is no switch", "write true or false"
        )


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
        limit, window_ms = _parse_rate(rate, where, LARGEST_LOG)
        beside = where.removesuffix(f".{self.algorithm}")
        if forgive is not None:
            _check_switch(forgive, f"{beside}.forgive")
        _check_switch(count_refused, f"{beside}.count_refused")
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
        return owned and self.window_ms <= SHORT_MS

    def largest_cost(self, *, reserved: bool = False) -> int | None:  # noqa: ARG002 (as others)
        """Give the most places one attempt could ever take."""
        return self.limit

    def spec(
        self,
        by: Sequence[str],
        *,
        forgiving: bool = True,
        reserved: bool = False,  # noqa: ARG002 (every algorithm is asked alike)
    ) -> list[object]:
        """Describe the limit to its Lua (the header of ``sliding_log.lua``)."""
        flags = int(self.count_refused) + 2 * int(forgiving and self.forgives(by))
        flags += 4 * int(heeds_pardon(by))
        return [self.algorithm, self.limit, self.window_ms, flags, list(self.lockout_ms)]


@dataclass(frozen=True, slots=True, init=False)
class Cooldown:
    """
    A wait after each admitted attempt, longer for each one in a row.

    The n-th in a row starts the n-th wait, and the last wait repeats. After ten times the last
    wait without one it starts over. Refused tries move nothing, and what an attempt costs makes
    no wait longer.

    Args:
        waits: Periods that don't fall, such as ``"30s", "60s", "120s"``; 1 to 32 of them.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG006, naming the value and the mend.
    """

    waits_ms: tuple[int, ...]

    algorithm: ClassVar[str] = "cooldown"
    limit: ClassVar[int] = 1
    lockout_ms: ClassVar[tuple[int, ...]] = ()

    def __init__(self, *waits: str, where: str = "Cooldown") -> None:
        if not 1 <= len(waits) <= LONGEST_WAITS:
            raise ConfigurationError(
                "AG006",
                where,
                f"{len(waits)} waits",
                f"write 1 to {LONGEST_WAITS} of them, such as ['30s', '60s']",
            )
        waits_ms = tuple(parse_period_ms(wait, where) for wait in waits)
        if list(waits_ms) != sorted(waits_ms):
            raise ConfigurationError(
                "AG006", where, "the waits fall", "write them rising, the shortest first"
            )
        object.__setattr__(self, "waits_ms", waits_ms)

    @property
    def window_ms(self) -> int:
        """The time in which it never admits more than one: its first wait."""
        return self.waits_ms[0]

    def largest_cost(self, *, reserved: bool = False) -> int | None:  # noqa: ARG002 (as others)
        """Give None: an attempt is one attempt, whatever it costs elsewhere."""
        return None

    def spec(
        self,
        by: Sequence[str],  # noqa: ARG002 (every algorithm is asked alike)
        *,
        forgiving: bool = True,  # noqa: ARG002
        reserved: bool = False,  # noqa: ARG002
    ) -> list[object]:
        """Describe the limit to its Lua (the header of ``cooldown.lua``)."""
        return [self.algorithm, list(self.waits_ms)]


@dataclass(frozen=True, slots=True, init=False)
class Distinct:
    """
    At most ``limit`` different values of a part in any window: how many accounts a client tries.

    A value counts from its latest attempt, for one window; one that counts already is always
    admitted. At most ``limit`` entries of 21 bytes are kept.

    Args:
        of: The part whose values are told apart, such as ``"account"``; not one it counts by.
        rate: ``"COUNT/PERIOD"``, such as ``"20/1h"``; COUNT from 1 to 1,000.
        forgive: A success takes its value out: an account that its client has opened is not one
            that it fails at. ``None``: where the window is an hour or less.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    of: str
    limit: int
    window_ms: int
    forgive: bool | None

    algorithm: ClassVar[str] = "distinct"
    lockout_ms: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self, of: str, rate: str, *, forgive: bool | None = None, where: str = "Distinct"
    ) -> None:
        beside = where.removesuffix(f".{self.algorithm}")
        if not isinstance(of, str):
            raise ConfigurationError(
                "AG005", where, f"{shown(of)} is no part", "name one, such as 'account'"
            )
        limit, window_ms = _parse_rate(rate, f"{beside}.limit", LARGEST_DISTINCT)
        if forgive is not None:
            _check_switch(forgive, f"{beside}.forgive")
        set_once = object.__setattr__
        set_once(self, "of", of)
        set_once(self, "limit", limit)
        set_once(self, "window_ms", window_ms)
        set_once(self, "forgive", forgive)

    def forgives(self, by: Sequence[str]) -> bool:  # noqa: ARG002 (asked as a sliding log is)
        """Tell whether a success takes its value out altogether."""
        return self.window_ms <= SHORT_MS if self.forgive is None else self.forgive

    def largest_cost(self, *, reserved: bool = False) -> int | None:  # noqa: ARG002 (as others)
        """Give None: a value is one value, whatever an attempt costs elsewhere."""
        return None

    def spec(
        self,
        by: Sequence[str],
        *,
        forgiving: bool = True,
        reserved: bool = False,  # noqa: ARG002 (every algorithm is asked alike)
    ) -> list[object]:
        """Describe the limit to its Lua (the header of ``distinct.lua``)."""
        return [self.algorithm, self.limit, self.window_ms, int(forgiving and self.forgives(by))]


@dataclass(frozen=True, slots=True, init=False)
class FixedWindow:
    """
    At most ``limit`` in each window of the clock, counted from the epoch in UTC: a budget.

    It costs a few bytes whatever it counts, and lets two bursts meet where windows do: up to
    twice the limit within one window's length. Where that matters, take a sliding log.

    Args:
        rate: ``"COUNT/PERIOD"``, such as ``"1000/24h"``; COUNT from 1 to 1,000,000,000.
        reserve: Places that only attempts with a known device may use; from 0, less than COUNT.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    limit: int
    window_ms: int
    reserve: int

    algorithm: ClassVar[str] = "fixed_window"
    lockout_ms: ClassVar[tuple[int, ...]] = ()

    def __init__(self, rate: str, *, reserve: int = 0, where: str = "FixedWindow") -> None:
        limit, window_ms = _parse_rate(rate, where, LARGEST_COUNT)
        if type(reserve) is not int or not 0 <= reserve < limit:
            raise ConfigurationError(
                "AG005",
                f"{where.removesuffix(f'.{self.algorithm}')}.reserve",
                f"{shown(reserve)} places of {limit} can't be kept back",
                f"take a whole number, 0 to {limit - 1}",
            )
        set_once = object.__setattr__
        set_once(self, "limit", limit)
        set_once(self, "window_ms", window_ms)
        set_once(self, "reserve", reserve)

    def largest_cost(self, *, reserved: bool = False) -> int | None:
        """Give the most places one attempt could ever take."""
        return self.limit - self.reserve if reserved else self.limit

    def spec(
        self,
        by: Sequence[str],  # noqa: ARG002 (every algorithm is asked alike)
        *,
        forgiving: bool = True,  # noqa: ARG002
        reserved: bool = False,
    ) -> list[object]:
        """Describe the limit to its Lua (the header of ``fixed_window.lua``)."""
        return [self.algorithm, self.largest_cost(reserved=reserved), self.window_ms]


@dataclass(frozen=True, slots=True, init=False)
class Conversion:
    """
    A breaker on messages with codes: locks if too few of the last codes were entered.

    A code is finished when it was entered or when its life is over. The attempt that finds fewer
    than ``least`` of the last ``limit`` finished ones entered is admitted and sets the lock; with
    the lock's end it starts afresh. As many codes under way as it looks back on are followed;
    while there are more, it judges by that sample.

    Args:
        share: ``"LEAST/OF"``, such as ``"10/50"``; OF from 1 to 200.
        lockout: How long it locks: one period.
        life: How long a code is good.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    least: int
    limit: int
    lockout_ms: tuple[int, ...]
    life_ms: int

    algorithm: ClassVar[str] = "conversion"

    def __init__(
        self, share: str, *, lockout: str, life: str = "10m", where: str = "Conversion"
    ) -> None:
        match = _SHARE.fullmatch(share) if isinstance(share, str) else None
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= LARGEST_SAMPLE:
            raise ConfigurationError(
                "AG005",
                where,
                f"{shown(share)} is no share",
                f"write LEAST/OF, such as '10/50', with OF up to {LARGEST_SAMPLE}",
            )
        beside = where.removesuffix(f".{self.algorithm}")
        set_once = object.__setattr__
        set_once(self, "least", int(match[1]))
        set_once(self, "limit", int(match[2]))
        set_once(self, "lockout_ms", (parse_period_ms(lockout, f"{beside}.lockout"),))
        set_once(self, "life_ms", parse_period_ms(life, f"{beside}.life"))

    @property
    def window_ms(self) -> int:
        """The time for which it locks."""
        return self.lockout_ms[0]

    def largest_cost(self, *, reserved: bool = False) -> int | None:  # noqa: ARG002 (as others)
        """Give None: a message is one message, whatever an attempt costs elsewhere."""
        return None

    def spec(
        self,
        by: Sequence[str],  # noqa: ARG002 (every algorithm is asked alike)
        *,
        forgiving: bool = True,
        reserved: bool = False,  # noqa: ARG002
    ) -> list[object]:
        """Describe the limit to its Lua (the header of ``conversion.lua``)."""
        return [
            self.algorithm,
            self.least,
            self.limit,
            self.lockout_ms[0],
            self.life_ms,
            int(forgiving),
        ]


@dataclass(frozen=True, slots=True)
class Block:
    """The operators' block: nothing is counted; while it stands it refuses. In no policy."""

    algorithm: ClassVar[str] = "block"
    limit: ClassVar[int] = 0
    window_ms: ClassVar[int] = 0
    lockout_ms: ClassVar[tuple[int, ...]] = ()

    def largest_cost(self, *, reserved: bool = False) -> int | None:  # noqa: ARG002 (as others)
        """Give None: it counts nothing."""
        return None

    def spec(
        self,
        by: Sequence[str],  # noqa: ARG002 (every algorithm is asked alike)
        *,
        forgiving: bool = True,  # noqa: ARG002
        reserved: bool = False,  # noqa: ARG002
    ) -> list[object]:
        """Describe it to its Lua (the header of ``block.lua``)."""
        return [self.algorithm]


#: What a limit can be.
Algorithm: TypeAlias = SlidingLog | Cooldown | Distinct | FixedWindow | Conversion | Block
