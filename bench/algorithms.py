"""
What each algorithm admits of one and the same input, and what it costs; from the real Lua.

Usage: ``python -m bench.algorithms [--write]``. Prints the table; with ``--write`` it also draws
``docs/algorithms.svg`` and puts the table into ``docs/algorithms.md``. The clock is a passed one
and the input is seeded, so that every run gives the same.
"""

from __future__ import annotations

import argparse
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import valkey

from authguard import (
    Cooldown,
    Distinct,
    FixedWindow,
    Guard,
    LeakyBucket,
    SlidingLog,
    SlidingWindowCounter,
    TokenBucket,
)
from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from authguard.limits import Algorithm

__all__ = ["Figures", "draw", "measure", "page_with", "table"]

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE, PLOT = DOCS / "algorithms.md", DOCS / "algorithms.svg"
MEASURED: Final = re.compile(r"(<!-- measured: .*? -->\n).*?(<!-- end -->)", re.DOTALL)

SECRET = "a secret of the benchmark, 32 bytes or more"
MINUTE: Final = 60_000
START: Final = 30_000_000 * MINUTE  # a minute of the clock begins here
LENGTH: Final = 5 * MINUTE

#: At how many places the memory of a key is read.
PLACES: Final = (1, 100, 10_000)


@dataclass(frozen=True, slots=True)
class Shown:
    """
    One algorithm of the table.

    Attributes:
        code: How it is written.
        limit: Itself, with numbers as near to ten a minute as it has.
        large: The same with room for many places, to see its memory.
    """

    code: str
    limit: Algorithm
    large: Algorithm


SHOWN: Final = (
    Shown('SlidingLog("10/1m")', SlidingLog("10/1m"), SlidingLog("10000/1m")),
    Shown('FixedWindow("10/1m")', FixedWindow("10/1m"), FixedWindow("10000/1m")),
    Shown(
        'SlidingWindowCounter("10/1m")',
        SlidingWindowCounter("10/1m"),
        SlidingWindowCounter("10000/1m"),
    ),
    Shown(
        'TokenBucket("10/1m", burst=10)',
        TokenBucket("10/1m", burst=10),
        TokenBucket("10000/1m", burst=10_000),
    ),
    Shown(
        'LeakyBucket("10/1m", queue=9)',
        LeakyBucket("10/1m", queue=9),
        LeakyBucket("10000/1m", queue=9_999),
    ),
    Shown('Cooldown("2s", "4s", "8s")', Cooldown("2s", "4s", "8s"), Cooldown("2s", "4s", "8s")),
    Shown(
        'Distinct("account", "10/1m")',
        Distinct("account", "10/1m"),
        Distinct("account", "1000/1m"),
    ),
)


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody asks: when (ms since the epoch), and with which value for a ``distinct``."""

    at: int
    value: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """
    An ask that was admitted.

    Attributes:
        at: When it was (ms since the epoch).
        acts: When its work may start; later only where a leaky bucket says so.
        value: What a ``distinct`` told it from others by.
    """

    at: int
    acts: int
    value: str


@dataclass(frozen=True, slots=True)
class Figures:
    """
    What was measured of one algorithm.

    Attributes:
        shown: The algorithm.
        admitted: What it admitted of the input.
        at_worst: The most it admitted within a minute, whatever was tried.
        acting_at_worst: The most whose work started within a minute.
        sizes: Bytes of its key at each of :data:`PLACES`.
    """

    shown: Shown
    admitted: tuple[Admitted, ...]
    at_worst: int
    acting_at_worst: int
    sizes: tuple[int, ...]


def offered() -> list[Ask]:
    """
    Make the input: five minutes of a caller in bursts.

    A trickle; two bursts that meet at a minute's edge; silence; a minute of hammering; silence; a
    burst in the middle of a minute.
    """
    chosen = random.Random(5)
    asks: list[int] = [chosen.randrange(start, start + 7_000) for start in range(0, 45_000, 7_000)]
    asks += [chosen.randrange(52_000, 60_000) for _ in range(20)]
    asks += [chosen.randrange(60_000, 68_000) for _ in range(20)]
    asks += [chosen.randrange(start, start + 1_000) for start in range(115_000, 185_000, 1_000)]
    asks += [chosen.randrange(265_000, 275_000) for _ in range(24)]
    return [Ask(START + at, f"user{chosen.randrange(30)}") for at in sorted(asks)]


def adversary(phase: int) -> list[Ask]:
    """Ask as greedily as can be from some moment of a minute on: at once, always, at each edge."""
    begins = START + phase
    times = [begins] * 25 + [begins + second * 1_000 for second in range(1, 121)]
    for edge in (START + minute * MINUTE for minute in (1, 2)):
        times += [edge - 1] * 25 + [edge] * 25
    asked = sorted(time for time in times if time >= begins)
    return [Ask(time, f"user{number}") for number, time in enumerate(asked)]


def replay(guard: Guard, limit: Algorithm, key: str, asks: Iterable[Ask]) -> list[Admitted]:
    """Ask the real Lua, at the asks' own times."""
    limiter = guard.limiter(limit)
    admitted = []
    for ask in asks:
        value = ask.value if isinstance(limit, Distinct) else None
        decision = limiter.hit(key, value=value, now_ms=ask.at)
        if decision.allowed:
            admitted.append(Admitted(ask.at, ask.at + decision.delay_ms, ask.value))
    return admitted


def most_within(
    admitted: Sequence[Admitted], limit: Algorithm, time: Callable[[Admitted], int]
) -> int:
    """Count the most within any minute: an event at t is inside while now < t + a minute."""
    most = 0
    for first, opening in enumerate(admitted):
        inside = [it for it in admitted[first:] if time(it) - time(opening) < MINUTE]
        values = {it.value for it in inside}
        most = max(most, len(values) if isinstance(limit, Distinct) else len(inside))
    return most


def sizes_of(guard: Guard, client: valkey.Valkey, limit: Algorithm) -> tuple[int, ...]:
    """Give the bytes of its keys with so many places taken in it; a ``distinct`` has 1,000."""
    limiter = guard.limiter(limit, name="sizes")
    client.flushdb()
    sizes, taken = [], 0
    for places in PLACES:
        while taken < min(places, limit.limit if isinstance(limit, Distinct) else places):
            cost = 1 if isinstance(limit, Distinct | Cooldown) else min(100, places - taken)
            later = taken * limit.waits_ms[-1] if isinstance(limit, Cooldown) else 0
            value = str(taken) if isinstance(limit, Distinct) else None
            limiter.hit("caller", cost, value=value, now_ms=START + later)
            taken += cost
        sizes.append(sum(client.memory_usage(key) for key in client.scan_iter()))
    client.flushdb()
    return tuple(sizes)


def measure() -> list[Figures]:
    """Ask a real server of its own for all."""
    figures = []
    with embedded_valkey() as server, valkey.Valkey(port=server.port) as client:
        guard = Guard(server.url, secret=SECRET, deadline_ms=10_000)
        for shown in SHOWN:
            tried = [
                replay(guard, shown.limit, f"adversary {phase}", adversary(phase))
                for phase in (0, 30_000, MINUTE - 1)
            ]
            figures.append(
                Figures(
                    shown,
                    tuple(replay(guard, shown.limit, "input", offered())),
                    max(most_within(each, shown.limit, lambda it: it.at) for each in tried),
                    max(most_within(each, shown.limit, lambda it: it.acts) for each in tried),
                    sizes_of(guard, client, shown.large),
                )
            )
        guard.close()
    return figures


def table(figures: Sequence[Figures]) -> str:
    """Write the measured table, as Markdown."""
    asks = len(offered())
    lines = [
        (
            f"| written | admits of {asks} | most within a minute | the same, at worst"
            " | bytes at 1 / 100 / 10,000 places |"
        ),
        "|---|--:|--:|--:|--:|",
    ]
    for it in figures:
        most = most_within(it.admitted, it.shown.limit, lambda each: each.at)
        worst = f"{it.at_worst}"
        if it.acting_at_worst != it.at_worst:
            worst += f"; {it.acting_at_worst} start"
        if isinstance(it.shown.limit, Distinct):
            most_text, worst = f"{most} different", f"{worst} different"
        else:
            most_text = f"{most}"
        sizes = " / ".join(f"{size:,}" for size in it.sizes)
        if isinstance(it.shown.limit, Distinct):
            sizes += " (of 1,000, the most it takes)"
        lines.append(
            f"| `{it.shown.code}` | {len(it.admitted)} | {most_text} | {worst} | {sizes} |"
        )
    return "\n".join(lines) + "\n"


# The plot: bars of four seconds, what was asked behind what was admitted.
BIN, BAR, LEFT, TOP, ROW, DEEP = 4_000, 9, 12, 42, 84, 48

STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #57606a }
  .code { font: 13px ui-monospace, monospace; fill: #1f2328 }
  .asked { fill: #8c959f; opacity: .35 }
  .acts { fill: #0969da }
  line { stroke: #8c959f; stroke-width: 1; opacity: .5 }
  .edge { stroke-dasharray: 2 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 }
    .code { fill: #e6edf3 }
    .acts { fill: #4493f8 }
    .asked { opacity: .4 }
  }
"""


def _bars(times: Iterable[int], kind: str, floor: int, tallest: int) -> list[str]:
    counts = [0] * (LENGTH // BIN)
    for time in times:
        at = (time - START) // BIN
        if at < len(counts):
            counts[at] += 1
    bars = []
    for at, count in enumerate(counts):
        height = round(DEEP * count / tallest)
        if count:
            bars.append(
                f'<rect class="{kind}" x="{LEFT + at * BAR + 1}" y="{floor - height}"'
                f' width="{BAR - 1}" height="{height}"/>'
            )
    return bars


def draw(figures: Sequence[Figures]) -> str:
    """Draw the plot as SVG: one panel each, the same input behind all of them."""
    asks = [ask.at for ask in offered()]
    tallest = max(
        sum(start <= at - START < start + BIN for at in asks) for start in range(0, LENGTH, BIN)
    )
    right = LEFT + LENGTH // BIN * BAR
    width, height = right + LEFT, TOP + ROW * len(figures) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>What each algorithm admits of one and the same input</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="asked" x="{LEFT}" y="9" width="11" height="11"/>',
        f'<text x="{LEFT + 17}" y="19">asked ({len(asks)})</text>',
        f'<rect class="acts" x="{LEFT + 110}" y="9" width="11" height="11"/>',
        (
            f'<text x="{LEFT + 127}" y="19">admitted, at the time its work starts;'
            " a bar is four seconds</text>"
        ),
    ]
    for row, it in enumerate(figures):
        floor = TOP + row * ROW + 18 + DEEP
        parts += [
            f'<line class="edge" x1="{x}" y1="{floor - DEEP}" x2="{x}" y2="{floor}"/>'
            for x in (LEFT + minute * MINUTE // BIN * BAR for minute in range(1, 5))
        ]
        parts += _bars(asks, "asked", floor, tallest)
        parts += _bars((each.acts for each in it.admitted), "acts", floor, tallest)
        code = it.shown.code.replace('"', "&quot;")
        parts += [
            f'<line x1="{LEFT}" y1="{floor}" x2="{right}" y2="{floor}"/>',
            f'<text class="code" x="{LEFT}" y="{floor - DEEP - 6}">{code}</text>',
            (
                f'<text x="{right}" y="{floor - DEEP - 6}" text-anchor="end">'
                f"{len(it.admitted)} admitted</text>"
            ),
        ]
    for minute in range(6):
        x = LEFT + minute * MINUTE // BIN * BAR
        anchor = "start" if minute == 0 else "end" if minute == 5 else "middle"
        parts.append(f'<text x="{x}" y="{height - 10}" text-anchor="{anchor}">{minute}:00</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def page_with(measured: str, page: str) -> str:
    """Put the measured table between the page's two marks."""
    return MEASURED.sub(lambda marks: marks[1] + measured + marks[2], page)


def main() -> None:
    """Measure and print; with ``--write`` bring the document up to date."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.algorithms", description=__doc__.split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--write", action="store_true", help="into docs/algorithms.md and .svg")
    chosen = parser.parse_args()
    figures = measure()
    print(table(figures), end="")
    if chosen.write:
        PLOT.write_text(draw(figures), encoding="utf-8")
        PAGE.write_text(page_with(table(figures), PAGE.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
