"""A replay's report for a person at a terminal of 80 columns. Needs the extra ``cli``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from authguard.ops.printable import printable
from authguard.ops.replay_report import rfc_3339

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from authguard.ops.replay_report import Report, Tally

__all__ = ["replay_table"]

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def replay_table(report: Report, log: str) -> RenderableType:
    """Lay a report out; ``log`` names its file."""
    parts: list[RenderableType] = [_summary(report, log)]
    if report.by_limit:
        parts.append(_by_limit(report))
    if report.clients:
        parts.append(_tallies("Clients most refused", "client", report.clients))
    if report.accounts:
        parts.append(_tallies("Accounts most refused", "account", report.accounts))
    if report.worst_offender is not None:
        worst = report.worst_offender
        parts.append(
            Text(
                f"Worst offender: {printable(worst.key)}, refused {_times(worst.refused)},"
                f" kept out for {duration(worst.kept_out_ms)} in all (from each refusal to the end"
                " of its wait; what overlaps counts once)"
            )
        )
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts[:-1]), parts[-1])


def duration(length_ms: int) -> str:
    """Give a length of time in its two largest units, rounded up to whole seconds."""
    left_s = -(-length_ms // 1000)
    words: list[str] = []
    for unit, size_s in _UNITS:
        count, left_s = divmod(left_s, size_s)
        if count or (unit == "s" and not words):
            words.append(f"{count} {unit}")
    return " ".join(words[:2])


def _summary(report: Report, log: str) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    others = f", {report.other_lines:,} of them about other things" if report.other_lines else ""
    damaged = f", {report.damaged_lines:,} damaged" if report.damaged_lines else ""
    rows = [
        ("Log", f"{printable(log)} ({report.lines:,} lines{others}{damaged})"),
        ("Policy", printable(report.policy)),
        ("Time", _time(report)),
        ("Tries", f"{report.attempts:,} ({report.failures:,} failed, {report.successes:,} right)"),
        ("Admitted", _share(report.admitted, report.attempts)),
        ("Refused", _share(report.refused, report.attempts)),
    ]
    if report.successes:
        rows.append(("Right but refused", f"{report.successes_refused:,} of {report.successes:,}"))
    if report.malformed:
        rows.append(("Malformed names", f"{report.malformed:,} (charged to their client alone)"))
    for name, value in rows:
        table.add_row(name, Text(value))
    return table


def _time(report: Report) -> str:
    if report.first_ms is None or report.last_ms is None:
        return "no tries"
    assumed = "" if report.assumed_year is None else "; the year is assumed (--year sets it)"
    return f"{rfc_3339(report.first_ms)} to {rfc_3339(report.last_ms)}{assumed}"


def _by_limit(report: Report) -> Table:
    table = _table("Refused by limit")
    table.add_column("limit")
    table.add_column("refused", justify="right")
    for name, refused in report.by_limit.items():
        table.add_row(Text(name), f"{refused:,}")
    return table


def _tallies(title: str, subject: str, tallies: Iterable[Tally]) -> Table:
    table = _table(title)
    table.add_column(subject, overflow="fold", min_width=20)
    for name in ("tries", "admitted", "refused"):
        table.add_column(name, justify="right", no_wrap=True)
    for tally in tallies:
        table.add_row(
            Text(printable(tally.key)),
            *(f"{count:,}" for count in (tally.attempts, tally.admitted, tally.refused)),
        )
    return table


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})" if whole else f"{part:,}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
