"""Time zones, as the Lua can reckon with them: from when on local time is how far ahead of UTC."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final

from authguard.checks import shown
from authguard.errors import ConfigurationError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

__all__ = ["check_zone", "offsets_of"]

#: Years before and after the one in which a process starts for which changes are told.
_YEARS_BEFORE, _YEARS_AFTER = 1, 6

#: No zone changes its clocks twice within it.
_STEP: Final = timedelta(days=7)

#: What is another zone on another machine, or another reckoning of time.
_OF_THE_MACHINE: Final = frozenset({"localtime", "posixrules", "Factory"})
_VARIANTS: Final = ("right/", "posix/")

_MS: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def check_zone(zone: object, where: str) -> None:
    """
    Refuse what is no time zone of a name that means the same on every machine.

    Args:
        zone: A name of the IANA database, such as ``Europe/Oslo``.
        where: The setting it stands in, for the error.

    Raises:
        ConfigurationError: AG006.
    """
    from zoneinfo import ZoneInfo  # noqa: PLC0415 (for those who name a zone; 5 ms to import)

    if isinstance(zone, str) and zone not in _OF_THE_MACHINE and not zone.startswith(_VARIANTS):
        with suppress(ValueError, OSError, KeyError):  # what ZoneInfo raises for other names
            ZoneInfo(zone)
            return
    raise ConfigurationError(
        "AG006",
        where,
        f"there is no time zone {shown(zone)}",
        "take a name of the IANA database, such as 'Europe/Oslo'; where the system has none,"
        " install the package tzdata",
    )


@cache
def offsets_of(zone: str) -> tuple[int, ...]:
    """
    List when a zone's offset begins and what it is: from (ms since the epoch), offset (ms), ….

    Args:
        zone: A name that :func:`check_zone` has let pass.
    """
    from zoneinfo import ZoneInfo  # noqa: PLC0415 (as above)

    info = ZoneInfo(zone)
    year = datetime.now(UTC).year
    time = datetime(year - _YEARS_BEFORE, 1, 1, tzinfo=UTC)
    end = datetime(year + _YEARS_AFTER + 1, 1, 1, tzinfo=UTC)
    offset = _offset(info, time)
    offsets = [(time, offset)]
    while time < end:
        later = time + _STEP
        if _offset(info, later) != offset:
            offsets.append(_change(info, time, later))
            offset = offsets[-1][1]
        time = later
    return tuple(
        number for since, ahead in offsets for number in ((since - _EPOCH) // _MS, ahead // _MS)
    )


def _offset(zone: ZoneInfo, time: datetime) -> timedelta:
    return time.astimezone(zone).utcoffset() or timedelta(0)


def _change(zone: ZoneInfo, before: datetime, after: datetime) -> tuple[datetime, timedelta]:
    """Find the second in between at which the offset becomes what it is after."""
    offset, second = _offset(zone, after), timedelta(seconds=1)
    while after - before > second:
        middle = before + (after - before) // (2 * second) * second
        if _offset(zone, middle) == offset:
            after = middle
        else:
            before = middle
    return after, offset
