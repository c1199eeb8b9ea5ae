"""
Where the time of a decision goes, by layers; before a change and after it, side by side.

Usage: ``python -m bench.profile [--quick] [--before CHECKOUT] [--write PAGE]``. Each checkout runs
each part in a process of its own with a server of its own (:mod:`bench.profiled`); their rounds
take turns in random order, so that a slow minute of the machine strikes both. Prints tables as
Markdown; ``--write`` puts them between the marks of a page, such as ``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import textwrap
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["measure", "page_with", "tables"]

HERE: Final = Path(__file__).resolve().parents[1]
MEASURED: Final = re.compile(
    r"(<!-- measured: python -m bench\.profile .*? -->\n).*?(<!-- end -->)", re.DOTALL
)

#: What one round of one process gave: microseconds by name (``Part.round`` of the child).
Round: TypeAlias = "Mapping[str, float]"
#: Rounds by checkout, ``before`` and ``now``.
Rounds: TypeAlias = "dict[str, list[Round]]"

PARTS: Final = {
    "logs": "Three logs: account 5/15m, client 100/15m, both together 10/15m",
    "profile": "The default login profile: eight limits, and the operators' blocks",
    "known": "A refusal that is known already: the account's log is full",
    "wrong": "A wrong password through Flask: `@guard.protect` over the three logs, JSON, no hash",
    "right": "A right password through Flask, which `succeed()` gives back",
}

#: What stands below a table that has the stages.
STORE_IS: Final = (
    "*The store* is not timed itself: it is what remains of *Python of ours* when the other lines"
    " with one dot are taken off. Those are timed apart, on a reply that is at hand. So what runs"
    " slower around a real call counts here, as do the errors of all of them: it can be below 0."
)

#: By which share the lines' medians may miss the whole's before it is said, and what is said.
MISSES: Final = 0.02
APART: Final = (
    "In each round the lines add up to the whole. Their medians do not here: together they are {}."
    " Each is the median by itself: where some rounds are fast and others slow, one line's is of"
    " another round than the next line's."
)


@dataclass(frozen=True, slots=True)
class Row:
    """
    One line of a table.

    Attributes:
        title: What it says.
        figure: Reads it from a round; KeyError, where that has none.
        form: How it is written.
        adds: It is one of the lines that add up to the whole, round by round.
    """

    title: str
    figure: Callable[[Round], float]
    form: str = "{:,.1f}"
    adds: bool = False


def _library(it: Round) -> float:
    return it["library"] - it["library_socket"]


def _ours(it: Round) -> float:
    outside = it["whole"] - it["whole_socket"]
    return outside - _library(it) - it.get("unprotected", 0.0)


def _ours_cpu(it: Round) -> float:
    return it["whole_cpu"] - it["library_cpu"] - it.get("unprotected_cpu", 0.0)


def _beyond(it: Round) -> float:
    if it["commands"] < 1:
        raise KeyError("no command to compare with")
    return _ours_cpu(it) / it["library_cpu"]


def _store(it: Round) -> float:
    """Give what the stages, each timed on a canned reply, leave of our Python in a real call."""
    return _ours(it) - it["before"] - it["reading"] - it["behind"]


ROWS: Final = (
    Row("**the whole**", lambda it: it["whole"]),
    Row("… to a PING", lambda it: it["whole"] / it["ping"], "{:.2f}"),
    Row("the same request, unprotected", lambda it: it["unprotected"], adds=True),
    Row("Python of ours", _ours, adds=True),
    Row("· from the claims to the call", lambda it: it["before"]),
    Row("· · reading the claims, pseudonyms", lambda it: it["claims"]),
    Row("· · finding the limits", lambda it: it["limits"]),
    Row("· · naming the keys", lambda it: it["keys"]),
    Row("· · making the call", lambda it: it["call"]),
    Row("· the store: connection, deadline, breaker", _store),
    Row("· from the reply to the decision", lambda it: it["reading"]),
    Row("· from the decision to the attempt", lambda it: it["behind"]),
    Row("client library", _library, adds=True),
    Row("socket, kernel, waiting", lambda it: it["whole_socket"] - it["scripts"], adds=True),
    Row("Lua", lambda it: it["scripts"] - it["inside"], adds=True),
    Row("commands inside it", lambda it: it["inside"], adds=True),
    Row("commands sent", lambda it: it["commands"], "{:.2f}"),
    Row("CPU of our process", lambda it: it["whole_cpu"]),
    Row("… of the bare EVALSHA alone", lambda it: it["library_cpu"]),
    Row("… ours beyond it, to it", _beyond, "{:.2f}"),
    Row("beside it: a PING", lambda it: it["ping"]),
    Row("a no-op EVALSHA, as many arguments", lambda it: it["no_op"]),
    Row("the same EVALSHAs by the client library alone", lambda it: it["library"]),
)


@contextmanager
def child(checkout: Path, part: str, chunk: int) -> Iterator[Callable[[], Round]]:
    """Start a process on a checkout; give what asks it for a round."""
    with subprocess.Popen(
        [sys.executable, "-P", str(HERE / "bench" / "profiled.py"), part, str(chunk), checkout],
        env=os.environ | {"PYTHONPATH": str(checkout)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        stdin, stdout = process.stdin, process.stdout

        def ask() -> Round:
            with suppress(BrokenPipeError):  # its last line tells
                stdin.write(b"\n")
            line = stdout.readline()
            if not line:
                raise RuntimeError(f"{part} ended on {checkout}")
            answer: Round = json.loads(line)
            return answer

        yield ask
        stdin.close()  # it ends by itself


def measure(checkouts: Mapping[str, Path], *, quick: bool) -> dict[str, Rounds]:
    """Ask all parts; both checkouts in every round, in random order."""
    chosen = random.Random(31)
    rounds, chunk = (3, 200) if quick else (24, 500)
    measured: dict[str, Rounds] = {}
    for part in PARTS:
        with ExitStack() as stack:
            asks = {
                name: stack.enter_context(child(path, part, chunk))
                for name, path in checkouts.items()
            }
            for ask in asks.values():
                ask()  # the first round warms up
            figures: Rounds = {name: [] for name in asks}
            for _ in range(rounds):
                for name in chosen.sample(list(asks), len(asks)):
                    figures[name].append(asks[name]())
            measured[part] = figures
    return measured


def _median(row: Row, rounds: list[Round]) -> float | None:
    """Give a line's figure; None where the rounds have none."""
    try:
        return statistics.median(row.figure(it) for it in rounds)
    except KeyError:
        return None


def _cell(row: Row, rounds: list[Round]) -> str:
    median = _median(row, rounds)
    return "" if median is None else row.form.format(median)


def _notes(figures: Rounds) -> Iterator[str]:
    """Say what a reader of the table can't see from it."""
    if any("before" in it for rounds in figures.values() for it in rounds):
        yield STORE_IS
    sums = []
    for name, rounds in figures.items():
        whole = statistics.median(it["whole"] for it in rounds)
        lines = sum(_median(row, rounds) or 0.0 for row in ROWS if row.adds)
        if abs(lines - whole) > MISSES * whole:
            sums.append(f"{lines:,.1f} of {whole:,.1f} ({name})")
    if sums:
        yield APART.format(", ".join(sums))


def tables(measured: Mapping[str, Rounds]) -> str:
    """
    Write a table for each part, as Markdown, and below it what it doesn't tell by itself.

    Lines that no checkout has are left out.
    """
    lines: list[str] = []
    for part, figures in measured.items():
        lines += [f"### {PARTS[part]}", ""]
        lines += [f"| µs | {' | '.join(figures)} |", "|---" + "|--:" * len(figures) + "|"]
        for row in ROWS:
            cells = [_cell(row, rounds) for rounds in figures.values()]
            if any(cells):
                lines.append(f"| {row.title} | {' | '.join(cells)} |")
        lines.append("")
        for note in _notes(figures):
            lines += [*textwrap.wrap(note, 110), ""]
    return "\n".join(lines)


def page_with(measured: str, page: str) -> str:
    """Put what was measured between the page's two marks."""
    return MEASURED.sub(lambda marks: marks[1] + measured + marks[2], page)


def _has_marks(page: Path) -> bool:
    """Tell whether there is a page to put tables into."""
    return page.is_file() and MEASURED.search(page.read_text("utf-8")) is not None


def main() -> None:
    """Measure and print; with ``--write`` bring the document up to date."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile", description=__doc__.split("\n\n", maxsplit=1)[0]
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see it run")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="an older state beside it")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="such as docs/performance.md")
    chosen = parser.parse_args()
    if chosen.before and not (chosen.before / "authguard" / "__init__.py").is_file():
        parser.error("--before: no authguard there; name the folder of a checkout")
    if chosen.write and not _has_marks(chosen.write):
        parser.error("--write: no such page, or without the marks; name docs/performance.md")
    before = {"before": chosen.before.resolve()} if chosen.before else {}
    measured = tables(measure(before | {"now": HERE}, quick=chosen.quick))
    print(measured, end="")
    if chosen.write:
        page = chosen.write.read_text("utf-8")
        chosen.write.write_text(page_with(measured, page), encoding="utf-8")


if __name__ == "__main__":
    main()
