"""
What a login decision costs, against a PING and a script that does nothing; and beside its peers.

Usage: ``python -m bench [PART …] [--quick] [--json FILE]``, or ``make bench ARGS="…"``; without a
part, all of them, in twenty minutes. ``--quick`` takes one or two: enough to see all of it run, too
little to quote. At the end stand the targets, and whether they were reached. Run it alone.

All is measured on real servers of its own, in turn and in random order within every round, so that
slow and fast minutes of the machine strike all alike: the ratio is the figure. It is the median of
the rounds' ratios; eight rounds in ten lie within the spread beside it. The peers are other
libraries, which the extra ``bench`` installs.

Ours is told to ask the store for every decision: a refusal that a guard remembers costs no round
trip, and would flatter it. What remembering brings is shown in rows of its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

#: What each part measures is told in its module.
PARTS: Final = {
    "decision": "race",
    "crowd": "crowd",
    "admissions": "admissions",
    "cpu": "own_cpu",
    "commands": "commands",
    "memory": "memory",
    "flask": "web",
    "flood": "flood",
    "keys": "keyspace",
    "imports": "imports",
    "peers": "peers",
}
LIBRARIES: Final = ("valkey", "libvalkey", "limits", "Flask-Limiter", "throttled-py", "Flask")


def main() -> None:
    """Measure, print tables, and write JSON if asked to."""
    summary, _, notes = (__doc__ or "").strip().partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=summary,
        epilog=notes,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "part", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; without one: all"
    )
    parser.add_argument("--quick", action="store_true", help="a little of each, to see it run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.part if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}; take of: {', '.join(PARTS)}")
    try:
        from bench import targets  # noqa: PLC0415 (its libraries are an extra)

        parts = {
            name: importlib.import_module(f"bench.{PARTS[name]}")
            for name in PARTS
            if name in (chosen.part or PARTS)
        }
    except ModuleNotFoundError as missing:
        parser.error(f"no {missing.name} here; pip install -e '.[bench]'")

    versions = {"Python": platform.python_version()} | {name: version(name) for name in LIBRARIES}
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    figures: dict[str, Any] = {"versions": versions, "quick": chosen.quick}
    for name, part in parts.items():
        begin = time.monotonic()
        figures[name] = part.measure(quick=chosen.quick)
        part.report(figures[name])
        print(f"[{name}: {time.monotonic() - begin:.0f} s]", flush=True)
    figures["targets"] = targets.judge(figures)
    if figures["targets"]:
        targets.report(figures["targets"])
    if chosen.quick:
        print("\nA quick run: too few rounds to quote, and 100,000 live keys instead of 1,000,000.")
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
