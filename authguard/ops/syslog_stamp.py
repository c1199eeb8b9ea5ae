"""
When a line of syslog was written, also where the stamp doesn't say the year.

Two forms are read: the classic ``Dec 10 06:55:46`` of RFC 3164 (no year, no zone; a fraction, as
``journalctl -o short-precise`` writes it, is welcome) and RFC 3339, ``2024-12-10T06:55:46.5+01:00``
(rsyslog's file format, ``journalctl -o short-iso``). A stamp without a zone is read as UTC: a
replay needs the distances between lines, and those are the same in any zone.
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re
    from datetime import date

__all__ = ["STAMP", "Stamp", "YearHand", "read_stamp"]

_MONTHS: Final = tuple(calendar.month_abbr)[1:]
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DAYS_BEFORE: Final = (0, *accumulate(_DAYS))
_LEAP_DAY: Final = (2, 29)

#: A step back by more than half a year is New Year's Eve, not a late line. A step ahead by more
#: than this is a late line of the old year: syslog's queues, or rotated files joined out of order.
_NEW_YEAR_DAYS: Final = 183
_LATE_LINE_DAYS: Final = 300

_DAY_MS: Final = 86_400_000

#: Both forms, for use inside a larger pattern; :func:`read_stamp` reads its groups.
STAMP: Final = (
    rf"(?:(?P<month>{'|'.join(_MONTHS)}) {{1,2}}(?P<day>[0-9]{{1,2}}) "
    r"|(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[T ])"
    r"(?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9]):(?P<second>[0-5][0-9]|60)"
    r"(?:[.,](?P<fraction>[0-9]{1,9}))?"
    r"(?P<zone>Z|(?P<sign>[+-])(?P<zone_h>[01][0-9]|2[0-3]):?(?P<zone_m>[0-5][0-9]))?"
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A moment as the log tells it; a year of ``None`` is still to be found."""

    year: int | None
    month: int
    day: int
    ms_of_day: int

    def at_ms(self, year: int) -> int:
        """
        Milliseconds since 1970, taking ``year`` where the stamp has none.

        Raises:
            ValueError: The calendar has no such day, or it lies before 1970.
        """
        year = self.year if self.year is not None else year
        leap = self.month == _LEAP_DAY[0] and calendar.isleap(year)
        days = _DAYS[self.month - 1] if leap or self.month != _LEAP_DAY[0] else _LEAP_DAY[1] - 1
        if not 1 <= self.day <= days:
            raise ValueError("no such day")
        at_ms = calendar.timegm((year, self.month, self.day, 0, 0, 0)) * 1000 + self.ms_of_day
        if at_ms < 0:
            raise ValueError("before 1970")
        return at_ms


def read_stamp(match: re.Match[str]) -> Stamp | None:
    """Read the groups of :data:`STAMP`; ``None`` where month or day can't be."""
    year: int | None = None
    if match["date"] is None:
        month, day = _MONTHS.index(match["month"]) + 1, int(match["day"])
    else:
        year, month, day = map(int, match["date"].split("-"))
    if not (1 <= month <= len(_MONTHS) and 1 <= day <= _DAYS[month - 1]):
        return None
    second = (int(match["hour"]) * 60 + int(match["minute"])) * 60 + int(match["second"])
    ms_of_day = second * 1000 + int((match["fraction"] or "0").ljust(3, "0")[:3])
    if match["sign"] is not None:
        offset_ms = (int(match["zone_h"]) * 60 + int(match["zone_m"])) * 60_000
        ms_of_day += offset_ms if match["sign"] == "-" else -offset_ms
    return Stamp(year, month, day, ms_of_day)


class YearHand:
    """
    Follows stamps without a year through a log, and counts its turns of the year.

    The first line's year is turn 0. A leap day seen on the way pins the years down: its turn must
    be a leap year.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._day_of_year: int | None = None
        self._last = (0, 1, 1)
        self._leap_turn: int | None = None

    def place(self, stamp: Stamp) -> int:
        """Give the turn in which ``stamp``, the next in the order of the log, lies."""
        day_of_year = _DAYS_BEFORE[stamp.month - 1] + stamp.day
        if self._day_of_year is not None:
            ahead = day_of_year - self._day_of_year
            self._turn += (ahead < -_NEW_YEAR_DAYS) - (ahead > _LATE_LINE_DAYS)
        else:
            self._last = (0, stamp.month, stamp.day)
        self._day_of_year = day_of_year
        self._last = max(self._last, (self._turn, stamp.month, stamp.day))
        if (stamp.month, stamp.day) == _LEAP_DAY and self._leap_turn is None:
            self._leap_turn = self._turn
        return self._turn

    def fits(self, first_year: int) -> bool:
        """Tell whether the first leap day seen exists if turn 0 is ``first_year``."""
        return self._leap_turn is None or calendar.isleap(first_year + self._leap_turn)

    def first_year(self, latest: date) -> int:
        """Find the latest year for turn 0 that puts no line after ``latest`` and fits."""
        turn, month, day = self._last
        year = latest.year - turn - ((month, day) > (latest.month, latest.day))
        while not self.fits(year):
            year -= 1
        return year
