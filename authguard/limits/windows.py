"""The cheap ones: counters of the clock's own windows, a few bytes whatever they count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from authguard.checks import shown
from authguard.errors import ConfigurationError
from authguard.limits.base import Base
from authguard.limits.rates import LARGEST_COUNT, LARGEST_EXACT, MONTH, parse_rate
from authguard.limits.zones import check_zone, offsets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FixedWindow", "SlidingWindowCounter"]

_UTC: Final = "UTC"

#: What stands for a calendar in what the Lua is told.
_CALENDARS: Final = ("", "day", "month")


@dataclass(frozen=True, slots=True, init=False)
class FixedWindow(Base):
    """
    At most ``limit`` in each window of the clock, counted from the epoch in UTC: a budget.

    It costs a few bytes whatever it counts, and lets two bursts meet where windows do: up to
    twice the limit within one window's length. Where that matters, take a sliding log.

    Args:
        rate: ``"COUNT/PERIOD"``, such as ``"1000/24h"``; COUNT from 1 to 1,000,000,000. The
            period can be ``1mo``, a month of the calendar.
        reserve: Places that only attempts with a known device may use; from 0, less than COUNT.
        zone: The time zone whose days or months (``1d``, ``1mo``) the windows are, such as
            ``"Europe/Oslo"``; UTC without one. Changes of its clocks are known for six years
            from the start of the process on; later ones move a window's end by that much.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    limit: int
    window_ms: int
    reserve: int
    zone: str | None
    calendar: str

    algorithm: ClassVar[str] = "fixed_window"
    can_scale: ClassVar[bool] = True
    lockout_ms: ClassVar[tuple[int, ...]] = ()

    def __init__(
        self, rate: str, *, reserve: int = 0, zone: str | None = None, where: str = "FixedWindow"
    ) -> None:
        limit, window_ms = parse_rate(rate, where, LARGEST_COUNT, months=True)
        beside = where.removesuffix(f".{self.algorithm}")
        if type(reserve) is not int or not 0 <= reserve < limit:
            raise ConfigurationError(
                "AG005",
                f"{beside}.reserve",
                f"{shown(reserve)} places of {limit} can't be kept back",
                f"take a whole number, 0 to {limit - 1}",
            )
        period = rate.partition("/")[2]
        calendar = "month" if period == MONTH else ""
        if zone is not None:
            check_zone(zone, f"{beside}.zone")
            if period not in ("1d", MONTH):
                raise ConfigurationError(
                    "AG006",
                    f"{beside}.zone",
                    f"a time zone has days and months, and no {shown(period)}",
                    f"write the period as 1d or {MONTH}, or leave the zone out",
                )
            calendar = calendar or "day"
        set_once = object.__setattr__
        set_once(self, "limit", limit)
        set_once(self, "window_ms", window_ms)
        set_once(self, "reserve", reserve)
        set_once(self, "zone", zone)
        set_once(self, "calendar", calendar)

    def largest_cost(self, *, reserved: bool = False) -> int | None:
        """Give the limit, less what is kept back."""
        return self.limit - self.reserve if reserved else self.limit

    def numbers(self) -> list[Any]:
        """Give limit and window."""
        return [self.limit, self.window_ms]

    def spec(
        self,
        by: Sequence[str],  # noqa: ARG002 (every algorithm is asked alike)
        *,
        forgiving: bool = True,  # noqa: ARG002
        reserved: bool = False,
    ) -> list[Any]:
        """Describe the limit to its Lua (the header of ``fixed_window.lua``)."""
        kept = self.reserve if reserved else 0
        offsets = offsets_of(self.zone or _UTC) if self.calendar else ()
        return [*self.numbers(), kept, _CALENDARS.index(self.calendar), list(offsets)]

    def _like(self, text: str, where: str) -> FixedWindow:
        return FixedWindow(text, zone=self.zone, where=where)

    def same_kind(self) -> object:
        """Give the window, and whose days or months it is."""
        return self.window_ms, self.calendar, self.zone


@dataclass(frozen=True, slots=True, init=False)
class SlidingWindowCounter(Base):
    """
    At most ``limit`` in a sliding window, as two counters estimate it.

    ``estimate = current + previous * (share of the previous window still covered)``; the windows
    are the clock's own, aligned to the epoch in UTC. 80 in the minute before, 30 in this one, 15 s
    into it: 80 * 0.75 + 30 = 90. It takes what came before to be spread evenly, so that after a
    burst at a window's beginning it refuses too long, and after one at its end admits too much:
    less than twice the limit within one window's length. Where that matters, take a sliding log.

    Args:
        rate: ``"COUNT/PERIOD"``, such as ``"100/1m"``; COUNT from 1 to 1,000,000,000, and COUNT
            times the milliseconds of the period at most 2**53, so that all is exact.
        where: The setting it stands in, for errors.

    Raises:
        ConfigurationError: AG005 or AG006, naming the value and the mend.
    """

    limit: int
    window_ms: int

    algorithm: ClassVar[str] = "sliding_window_counter"
    can_scale: ClassVar[bool] = True
    lockout_ms: ClassVar[tuple[int, ...]] = ()

    def __init__(self, rate: str, *, where: str = "SlidingWindowCounter") -> None:
        limit, window_ms = parse_rate(rate, where, LARGEST_COUNT)
        # The estimate of a counter that was filled under a higher limit must fit too.
        largest = LARGEST_EXACT // (4 * window_ms)
        if limit > largest:
            raise ConfigurationError(
                "AG005",
                where,
                f"{limit} can't be reckoned with exactly over {shown(rate.partition('/')[2])}",
                f"take {largest} at most, a shorter period, or a fixed_window",
            )
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "window_ms", window_ms)

    def largest_cost(self, *, reserved: bool = False) -> int | None:  # noqa: ARG002 (as others)
        """Give the limit."""
        return self.limit

    def numbers(self) -> list[Any]:
        """Give limit and window."""
        return [self.limit, self.window_ms]

    def same_kind(self) -> object:
        """Give the window."""
        return self.window_ms

    def _like(self, text: str, where: str) -> SlidingWindowCounter:
        return SlidingWindowCounter(text, where=where)
