"""The ``authguard`` command, also ``python -m authguard``."""

from __future__ import annotations

import signal
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["main"]

#: What the extra ``cli`` brings.
_NEEDS = ("click", "rich")


def main() -> NoReturn:
    """
    Run the command line; never returns.

    Without the extra ``cli`` it says what to install, with exit status 2. SIGTERM and SIGHUP end it
    in order, like SIGINT: an embedded Valkey ends with it.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name in a log must not break an ASCII terminal
            stream.reconfigure(errors="backslashreplace")
    try:
        from authguard.cli import commands  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDS:
            raise
        sys.stderr.write(
            f"authguard: the command line needs {missing}, which is not installed;"
            " pip install 'authguard[cli]'\n"
        )
        sys.exit(2)
    commands(prog_name="authguard")
    sys.exit()  # not reached: click ends the process itself


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """End as the signal asks, but through every ``finally``; 128 + N is the shells' convention."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
