"""
How long imports take, in fresh processes: ours beyond nothing, and beyond Flask's own.

All find their bytecode, as what is installed does: the first round writes it, to a folder of this
benchmark, and is left out.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from typing import Any, Final

from bench.figures import interleaved, spread, table, timed_us, told

__all__ = ["measure", "report"]

IMPORTED: Final = {
    "nothing": "",
    "authguard": "import authguard",
    "flask": "import flask",
    "authguard.flask": "import authguard.flask",
}


def _milliseconds(code: str, environment: dict[str, str]) -> float:
    start = [sys.executable, "-c", code]
    return timed_us(lambda: subprocess.run(start, check=True, env=environment)) / 1_000


def measure(*, quick: bool) -> dict[str, Any]:
    """Start processes in turn, in random order."""
    rounds = 4 if quick else 31
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        took_ms = interleaved(
            {
                name: lambda code=code: _milliseconds(code, environment)
                for name, code in IMPORTED.items()
            },
            1 + rounds,
            random.Random(28),
        )
    warm = {name: times[1:] for name, times in took_ms.items()}

    def beyond(name: str, base: str) -> tuple[float, float, float]:
        return spread([a - b for a, b in zip(warm[name], warm[base], strict=True)], 1)

    return {
        "process_ms": {name: spread(times, 1) for name, times in warm.items()},
        "authguard_ms": beyond("authguard", "nothing"),
        "authguard_flask_ms": beyond("authguard.flask", "flask"),
    }


def report(figures: dict[str, Any]) -> None:
    """Print the table."""
    table("A process that imports", ("", "ms"), figures["process_ms"].items())
    told("authguard beyond nothing, ms", figures["authguard_ms"])
    told("authguard.flask beyond Flask, ms", figures["authguard_flask_ms"])
