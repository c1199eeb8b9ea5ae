"""What all commands share: exit statuses, errors of one line, and plain output. Needs ``cli``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console

from authguard.ops.printable import printable
from authguard.stores._address import read_address

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["EXIT_STATUS", "UnavailableError", "WrongUseError", "place_of", "show"]

EXIT_STATUS: Final = """\b
Exit status:
  0  done
  1  the store gave no clear verdict
  2  wrong use, a bad policy, or input that can't be read
"""


class UnavailableError(click.ClickException):
    """The store is away: exit status 1."""

    exit_code = 1


class WrongUseError(click.ClickException):
    """Wrong use or unreadable input: exit status 2."""

    exit_code = 2


def show(report: RenderableType) -> None:
    """Print without the blanks that a table fills its lines up with."""
    console = Console(force_terminal=sys.stdout.isatty(), highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(report)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def place_of(store_url: str | None) -> str:
    """Say which store it is, without the password that its address may hold."""
    nodes = read_address(store_url).nodes
    return printable(f"the store at {', '.join(map(str, nodes))}")
