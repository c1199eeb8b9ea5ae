"""
An OpenSSH server's log file, read into sign-in tries or refused in one clear line.

What a line means is told in :mod:`authguard.ops.sshd_lines`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from authguard.errors import AuthguardError
from authguard.ops.sshd_lines import SignIn, SshdLog, WrongYearError, parse_sshd_log

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SignIn", "SshdLog", "UnreadableLogError", "parse_sshd_log", "read_sshd_log"]

#: Longer lines are no sshd's (rsyslog cuts at 8 KiB, sshd a message at 1 KiB, a name at 100).
_LONGEST_LINE: Final = 65_536


class UnreadableLogError(AuthguardError):
    """The file can't be read as an sshd log; the message names it, the problem and the mend."""

    def __init__(self, path: str, problem: str, mend: str) -> None:
        self.path = path
        self.problem = problem
        self.mend = mend
        super().__init__(f"{path}: {problem}; {mend}")


def read_sshd_log(path: str | Path, *, year: int | None = None) -> SshdLog:
    """
    Read a file into its sign-in tries, or say in one line why it can't be.

    Args:
        path: The log; a pipe such as ``/dev/stdin`` will do.
        year: The first line's year, for stamps without one. By default the latest year that puts
            no line after the file's own modification time.

    Raises:
        UnreadableLogError: Missing, a directory, not readable, empty, binary, or without a single
            line in sshd's syslog form; or ``year`` has no 29 February where the log has one.
    """
    shown = str(path)
    try:
        with Path(path).open("rb") as stream:
            texts = _Texts(stream, shown)
            modified = datetime.fromtimestamp(os.fstat(stream.fileno()).st_mtime, UTC)
            log = parse_sshd_log(texts, year=year, latest=modified.date())
    except FileNotFoundError:
        raise UnreadableLogError(
            shown, "no such file", "name an sshd log, such as /var/log/auth.log"
        ) from None
    except IsADirectoryError:
        raise UnreadableLogError(shown, "is a directory", "name one log file inside it") from None
    except OSError as error:
        raise UnreadableLogError(
            shown,
            f"can't be read ({error.strerror or type(error).__name__})",
            "name a file that this user may read",
        ) from None
    except WrongYearError:
        raise UnreadableLogError(
            shown,
            f"holds a 29 February, which doesn't exist if its first year is {year}",
            "give --year a year that fits, or leave it out",
        ) from None
    if not log.lines:
        raise UnreadableLogError(shown, "is empty", "name a log that holds lines of sshd's")
    if not log.sshd_lines:
        found = "bytes that aren't UTF-8" if texts.undecodable else "no line in its syslog form"
        raise UnreadableLogError(
            shown,
            f"isn't an sshd log ({found})",
            "name a log with lines like 'Dec 10 06:55:46 host sshd[123]: …'",
        )
    return log


class _Texts:
    """
    The lines of a stream as text, in bounded memory.

    Bytes that aren't UTF-8 become escapes, since one program's odd line must not hide sshd's; a
    NUL byte means that this is no log at all.
    """

    def __init__(self, stream: BinaryIO, shown: str) -> None:
        self._stream = stream
        self._shown = shown
        self.undecodable = False

    def __iter__(self) -> Iterator[str]:
        first = True
        while raw := self._chunk():
            if _cut(raw):
                while _cut(self._chunk()):
                    pass
                yield ""
            else:
                text = self._text(raw)
                yield text.removeprefix("\ufeff") if first else text
            first = False

    def _chunk(self) -> bytes:
        """Read at most one line; complain of a NUL byte."""
        raw = self._stream.readline(_LONGEST_LINE)
        if b"\0" in raw:
            raise UnreadableLogError(
                self._shown,
                "is binary, not text (it holds a NUL byte)",
                "unpack it first (zcat), or export the journal (journalctl -u ssh)",
            )
        return raw

    def _text(self, raw: bytes) -> str:
        """Decode, and remember where that took escapes."""
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self.undecodable = True
            return raw.decode("utf-8", "backslashreplace")


def _cut(raw: bytes) -> bool:
    """Tell whether the line goes on after these bytes."""
    return len(raw) == _LONGEST_LINE and not raw.endswith(b"\n")
