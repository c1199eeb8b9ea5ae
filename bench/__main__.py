"""
What a login decision costs, against a PING and a script that does nothing; and beside its peers.

Usage: ``python -m bench [PART …] [--quick] [--json FILE]``, or ``make bench ARGS="…"``; without a
part, all of them, in twenty minutes. ``--quick`` takes one or two: enough to see all of it run, too
little to quote. At the end stand the targets of the parts that ran, and whether they were reached;
``flood`` and ``peers`` have none. Run it alone.

All is measured on real servers of its own, in turn and in random order within every round, so that
a slow minute of the machine strikes all: compare ratios, not times. A ratio is the median of the
rounds' ratios; eight rounds in ten lie within the spread beside it.

It does not strike all by the same factor. A PING is mostly waiting, and may take twice or three
times as long in one minute as in the next; a decision is mostly work, and follows by less. So
multiples of a PING follow the machine's mode: a low one may be a slow PING, whose own time and
spread are told beside it. Two runs can differ by more than the spread of either: quote several,
with the versions and the machine that stand at the top.

The peers are other libraries, which the extra ``bench`` installs.

Ours is told to ask the store for every decision: a refusal that a guard remembers costs no round
trip, and would flatter it. What remembering brings is shown in rows of its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
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
#: Whose versions are told, after the server's and Python's.
LIBRARIES: Final = ("valkey", "libvalkey", "limits", "Flask-Limiter", "throttled-py", "Flask")


def _versions() -> dict[str, str]:
    """Tell the versions of the server, of Python, and of the libraries."""
    from authguard.testing import embedded_valkey  # noqa: PLC0415 (an extra)
    from bench.logins import plain  # noqa: PLC0415 (its libraries are an extra)

    with embedded_valkey() as server, plain(server.url) as client:
        valkey_server = client.info("server")["valkey_version"]
    return {"Valkey server": valkey_server, "Python": platform.python_version()} | {
        name: version(name) for name in LIBRARIES
    }


def _machine() -> dict[str, Any]:
    """Tell what it runs on; the cores are those that this process may use."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
    }


def _unwritable(page: Path) -> str | None:
    """Tell why a file can't be written; one that is there stays as it is."""
    there = page.exists()
    try:
        with page.open("a"):
            pass
    except OSError as error:
        return error.strerror or type(error).__name__
    if not there:
        page.unlink()
    return None


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
    if chosen.json and (why := _unwritable(chosen.json)):
        parser.error(f"--json can't be written ({why}); name a file in a folder that you may write")
    try:
        from bench import targets  # noqa: PLC0415 (its libraries are an extra)

        parts = {
            name: importlib.import_module(f"bench.{PARTS[name]}")
            for name in PARTS
            if name in (chosen.part or PARTS)
        }
    except ModuleNotFoundError as missing:
        parser.error(f"no {missing.name} here; pip install -e '.[bench]'")

    versions, machine = _versions(), _machine()
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    print("{cores} cores, {kernel}, {architecture}".format(**machine))
    figures: dict[str, Any] = {"versions": versions, "machine": machine, "quick": chosen.quick}
    for name, part in parts.items():
        begin = time.monotonic()
        figures[name] = part.measure(quick=chosen.quick)
        part.report(figures[name])
        print(f"[{name}: {time.monotonic() - begin:.0f} s]", flush=True)
    figures["targets"] = targets.judge(figures)
    if figures["targets"]:
        targets.report(figures["targets"])
    if chosen.quick:
        print("\nA quick run: too few rounds to quote.")
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
