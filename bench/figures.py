"""Medians, their spread, and tables: what the parts make of their times."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "Spread",
    "interleaved",
    "percentile",
    "ratios",
    "shown",
    "spread",
    "table",
    "timed_us",
    "told",
]

#: Median, and the values between which eight rounds in ten lie.
Spread: TypeAlias = tuple[float, float, float]


def percentile(values: Iterable[float], share: float) -> float:
    """Give the value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[round(share * (len(ordered) - 1))]


def spread(values: Sequence[float], digits: int = 2) -> Spread:
    """Give their median, the tenth and the ninetieth percentile."""
    low, high = percentile(values, 0.1), percentile(values, 0.9)
    return round(statistics.median(values), digits), round(low, digits), round(high, digits)


def ratios(these: Sequence[float], to_those: Sequence[float]) -> list[float]:
    """
    Divide round by round, so that a slow minute strikes both sides of a ratio.

    It need not strike them equally: what mostly waits, as a PING does, and what mostly works don't
    slow down by the same factor. So a ratio to a PING moves with the machine.
    """
    return [a / b for a, b in zip(these, to_those, strict=True)]


def timed_us(call: Callable[[], object]) -> float:
    """Time one call, in microseconds."""
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) / 1_000


def interleaved(
    contenders: Mapping[str, Callable[[], float]], rounds: int, chosen: random.Random
) -> dict[str, list[float]]:
    """
    Let all run in every round, one after another in random order.

    Args:
        contenders: Each gives the figure of one round.
        rounds: How many.
        chosen: Chooses the order.

    Returns:
        Every contender's figures, round by round.
    """
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in chosen.sample(list(contenders), len(contenders)):
            figures[name].append(contenders[name]())
    return figures


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *notes: str) -> None:
    """
    Print a table: the first column of text, to the left; all others to the right.

    Args:
        title: The line above it.
        columns: What stands above each column.
        rows: The cells; a figure of three is a median and its spread.
        notes: Lines below it, which explain its words.
    """
    cells = [[shown(cell) for cell in row] for row in rows]
    widths = [
        max(len(row[at]) for row in [list(columns), *cells]) + 2 for at in range(len(columns))
    ]
    print(f"\n{title}")
    for row in [list(columns), *cells]:
        first, *others = zip(row, widths, strict=True)
        left = f"{first[0]:{first[1]}}"
        print((left + "".join(f"{cell:>{width}}" for cell, width in others)).rstrip())
    for note in notes:
        print(f"  {note}")


def told(title: str, figure: Sequence[float]) -> None:
    """Print one figure with its spread."""
    print(f"{title}: {shown(tuple(figure))}")


def shown(cell: object) -> str:
    """Write a cell: a number, text, a figure with its spread; ``-`` for what there isn't."""
    if cell is None:
        return "-"
    if isinstance(cell, tuple | list) and len(cell) == 3:
        median, low, high = cell
        return f"{shown(median)} ({shown(low)} to {shown(high)})"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1_000 else f"{cell:,.4g}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else f"{cell}"
