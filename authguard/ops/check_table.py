"""What a look over the store found, for a terminal of 80 columns. Needs the extra ``cli``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from authguard.ops.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from authguard.ops.check import CheckReport, Level

__all__ = ["check_table"]

_STYLES: Final[dict[Level, str]] = {"ok": "green", "warning": "yellow", "error": "bold red"}


def check_table(report: CheckReport) -> RenderableType:
    """Lay the findings out, the mend below what was seen, and count them."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    first: dict[tuple[str, str | None], str] = {}
    for finding in report.findings:
        # What one missing permission hides is told once.
        told = first.setdefault((finding.seen, finding.mend), finding.code)
        again = told != finding.code
        table.add_row(
            finding.code,
            Text(finding.level, style=_STYLES[finding.level]),
            Text(f"as {told}" if again else printable(finding.seen)),
        )
        if finding.mend is not None and not again:
            table.add_row("", "", Text(f"Mend: {printable(finding.mend)}", style="bold"))
    return Group(table, Text(), Text(_sum(report)))


def _sum(report: CheckReport) -> str:
    if report.ok:
        return "Nothing to mend."
    counts = {"error": report.count("error"), "warning": report.count("warning")}
    return (
        ", ".join(
            f"{count} {noun}" if count == 1 else f"{count} {noun}s"
            for noun, count in counts.items()
            if count
        )
        + "."
    )
