r"""
Sign-in tries out of an OpenSSH server's log.

sshd tells the result of a try in one line (``auth_log`` in OpenSSH's ``auth.c``)::

    Failed password for invalid user NAME from ADDRESS port PORT ssh2
    Accepted keyboard-interactive/pam for NAME from ADDRESS port PORT ssh2

NAME is whatever the client sent: it may be empty, begin or end with blanks, or itself read
``x from 192.0.2.1 port 22 ssh2``. The pattern therefore holds the line at both ends and takes the
longest name: the last address in the line is the one sshd wrote.

Only ``password`` and ``keyboard-interactive/…`` are tries of a credential a person types. ``none``
asks which methods there are, a ``publickey`` can't be guessed, and ``keyboard-interactive`` without
a device looked at nothing. ``Partial`` says that the password was right and another factor is due:
a success of this credential. Names stay as sshd wrote them, that is with its escapes (``\303``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from authguard.identity import read_address
from authguard.ops.syslog_stamp import STAMP, YearHand, read_stamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from authguard.identity import Address
    from authguard.ops.syslog_stamp import Stamp

__all__ = ["SignIn", "SshdLog", "WrongYearError", "parse_sshd_log"]

#: A date that any log's last line may lie before, should the file's own date be nonsense.
_EARLIEST_TODAY: Final = date(2000, 1, 1)

_LINE: Final = re.compile(
    rf"(?:<[0-9]{{1,3}}>)?{STAMP} (?P<host>\S+) (?:[a-z0-9]+\.[a-z]+ )?"
    r"(?:sshd(?:-session|-auth)?(?:\[[0-9]+\])?: (?P<message>.*)"
    r"|(?:syslogd: )?last message repeated (?P<repeated>[0-9]{1,6}) times?|.*)",
    re.ASCII | re.DOTALL,
)
_REPEATED: Final = re.compile(
    r"message repeated (?P<times>[0-9]{1,6}) times: \[ ?(?P<message>.*)\]", re.DOTALL
)
_RESULT: Final = re.compile(
    r"(?P<result>Failed|Accepted|Partial) (?:password|keyboard-interactive/[^ ]+) for "
    r"(?:invalid user )?(?P<name>.*) from (?P<address>[^ ]+) port [0-9]{1,5}(?: ssh[12])?"
    r"(?: \[preauth\])?",
    re.DOTALL,
)
_LOOKS_LIKE_A_RESULT: Final = re.compile(
    r"(?:message repeated [0-9]+ times: \[ ?)?"
    r"(?:Failed|Accepted|Partial) (?:password|keyboard-interactive/[^ ]+) for "
)


@dataclass(frozen=True, slots=True)
class SignIn:
    """
    One line's tries: ``times`` of them, all at ``at_ms``.

    Attributes:
        at_ms: Milliseconds since 1970.
        account: The name as sshd wrote it, blanks and all; may be empty.
        client: The address it came from; an IPv4 address that IPv6 carries taken out, zone dropped.
        succeeded: Whether the credential was right.
        times: How many tries the line stands for (syslog folds equal lines into one).
    """

    at_ms: int
    account: str
    client: Address
    succeeded: bool
    times: int = 1


@dataclass(frozen=True, slots=True)
class SshdLog:
    """
    What a log told, in order of time.

    Every line is one of three: it tells of tries (one entry in ``sign_ins`` each), it is another
    line (``other_lines``), or it tells of a try that can't be placed (``damaged_lines``).

    Attributes:
        sign_ins: The tries, by time; equal times keep the order of the file.
        lines: All lines of the file.
        other_lines: Lines that tell of no try, sshd's and other programs'.
        damaged_lines: sshd's results that can't be read: cut in half, on a day that no calendar
            has, or without an address (sshd writes ``UNKNOWN`` behind inetd's pipes).
        sshd_lines: Lines in sshd's syslog form, tries among them.
        assumed_year: The first line's year, where stamps bear none and nobody gave it.
    """

    sign_ins: tuple[SignIn, ...]
    lines: int
    other_lines: int
    damaged_lines: int
    sshd_lines: int
    assumed_year: int | None


@dataclass(frozen=True, slots=True)
class _Told:
    """What one message says, before its time is known."""

    account: str
    client: Address
    succeeded: bool
    times: int


def parse_sshd_log(lines: Iterable[str], *, year: int | None = None, latest: date) -> SshdLog:
    """
    Find the sign-in tries in lines of text; any text will do.

    Args:
        lines: The log's lines in their order, with or without line ends.
        year: The first line's year, for stamps without one.
        latest: Without ``year``: the day after which no line can have been written.
    """
    reader = _Reader()
    for line in lines:
        reader.read(line.rstrip("\r\n"))
    return reader.finish(year, max(latest, _EARLIEST_TODAY) + timedelta(days=1))


class WrongYearError(ValueError):
    """The year given contradicts a leap day of the log."""


class _Reader:
    """Reads line by line; years are settled at the end, when the last line is known."""

    def __init__(self) -> None:
        self._told: list[tuple[Stamp, int, _Told]] = []
        self._previous: dict[str, _Told | None] = {}
        self._hand = YearHand()
        self._yearless = False
        self._lines = 0
        self._sshd = 0
        self._damaged = 0

    def read(self, line: str) -> None:
        """Take in one line without its end."""
        self._lines += 1
        match = _LINE.fullmatch(line)
        if match is None:
            return
        stamp = read_stamp(match)
        turn = 0
        if stamp is not None and stamp.year is None:
            self._yearless = True
            turn = self._hand.place(stamp)
        host, message = match["host"], match["message"]
        if match["repeated"] is not None:
            told = _again(self._previous.get(host), int(match["repeated"]))
        else:
            self._sshd += message is not None
            told = self._previous[host] = _told(message) if message is not None else None
        if stamp is not None and told is not None:
            self._told.append((stamp, turn, told))
        elif told is not None or (message and _LOOKS_LIKE_A_RESULT.match(message)):
            self._damaged += 1

    def finish(self, year: int | None, latest: date) -> SshdLog:
        """Date every try, put them in order, and sum up."""
        if year is not None and not self._hand.fits(year):
            raise WrongYearError
        first_year = self._hand.first_year(latest) if year is None else year
        sign_ins: list[SignIn] = []
        for stamp, turn, told in self._told:
            try:
                at_ms = stamp.at_ms(first_year + turn)
            except ValueError:  # a day no calendar has: counted below as damaged
                continue
            sign_ins.append(SignIn(at_ms, told.account, told.client, told.succeeded, told.times))
        sign_ins.sort(key=lambda sign_in: sign_in.at_ms)
        return SshdLog(
            sign_ins=tuple(sign_ins),
            lines=self._lines,
            other_lines=self._lines - len(self._told) - self._damaged,
            damaged_lines=self._damaged + len(self._told) - len(sign_ins),
            sshd_lines=self._sshd,
            assumed_year=first_year if self._yearless and year is None else None,
        )


def _told(message: str) -> _Told | None:
    """Read one message of sshd's; None where it tells of no try."""
    times = 1
    if repeated := _REPEATED.fullmatch(message):
        times, message = int(repeated["times"]), repeated["message"]
    result = _RESULT.fullmatch(message.rstrip(" "))
    if result is None or not times:
        return None
    try:
        client = read_address(result["address"])
    except ValueError:
        return None
    return _Told(result["name"], client, result["result"] != "Failed", times)


def _again(previous: _Told | None, times: int) -> _Told | None:
    """Read the older ``last message repeated N times``, which means the host's line before."""
    if previous is None or not times:
        return None
    return _Told(previous.account, previous.client, previous.succeeded, times)
