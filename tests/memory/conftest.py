"""What the tests of memory share: floods from other processes, and a table of what they weigh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import valkey

from authguard.testing import embedded_valkey
from tests.flask.conftest import SECRET, bare_app, site_factory, volley

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard.testing import EmbeddedValkey

# Fixtures are found here by their names.
__all__ = ["bare_app", "site_factory", "volley"]

ROOT: Final = Path(__file__).parents[2]

#: What the server needs for a key besides its value: name, entry in two tables and expiry; and how
#: much more than a value's own bytes its allocator may take for it.
KEY_BYTES: Final = 200
ROUNDING: Final = 1.3

#: By no more does the memory of a server change that has given up the buffers of idle connections.
CALM_BYTES: Final = 256

_ROWS: Final = pytest.StashKey[list[tuple[str, str]]]()


@dataclass(frozen=True)
class Flood:
    """
    What came of a flood.

    Attributes:
        admitted: Attempts that reached the password check.
        refused: Attempts that didn't.
        grown: By how much the weight of its heaviest process grew after a thousand attempts.
    """

    admitted: int
    refused: int
    grown: float


@dataclass(frozen=True)
class Weight:
    """
    What a server holds.

    Attributes:
        used: All its memory but what clients' connections take, in bytes.
        keys: How many keys.
        largest: The bytes of its heaviest key.
        longest_ms: The longest that a key has to live; none lives for ever.
    """

    used: int
    keys: int
    largest: int
    longest_ms: int

    @classmethod
    def of(cls, client: valkey.Valkey) -> Weight:
        """Weigh a server, key by key."""
        before, used = 0, _used_bytes(client)
        for _ in range(20):
            if abs(used - before) < CALM_BYTES:
                break
            time.sleep(0.5)
            before, used = used, _used_bytes(client)
        keys = list(client.scan_iter(count=1_000))
        asked = client.pipeline(transaction=False)
        for key in keys:
            asked.pttl(key)
            asked.memory_usage(key, samples=0)
        told = asked.execute()
        lives = [life for life in told[::2] if life != -2]  # -2: gone since
        assert min(lives, default=0) >= 0, "a key without an expiry"
        weights = [weight for weight in told[1::2] if weight is not None]
        return cls(used, len(keys), max(weights, default=0), max(lives, default=0))


def _used_bytes(client: valkey.Valkey) -> int:
    memory: Any = client.info("memory")
    return int(memory["used_memory"]) - int(memory["mem_clients_normal"])


def flooded(
    url: str,
    clients: list[str],
    attempts: int,
    *,
    policies: dict[str, Any] | None = None,
    processes: int = 2,
) -> Flood:
    """Let processes of attackers (flood.py) share out the attempts, and wait for them."""
    running = []
    for seed in range(processes):
        given = {
            "url": url,
            "secret": SECRET,
            "policies": policies,
            "clients": clients,
            "attempts": attempts // processes,
            "seed": seed,
        }
        running.append(
            subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("flood.py")), json.dumps(given)],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        )
    outs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    told = [json.loads(out) for out in outs]
    return Flood(
        admitted=sum(each["admitted"] for each in told),
        refused=sum(each["refused"] for each in told),
        grown=max(each["bytes"] / each["warm_bytes"] for each in told) - 1,
    )


@pytest.fixture(scope="module")
def small_valkey() -> Iterator[EmbeddedValkey]:
    """Run a server for the tests of one file, so that nothing else is weighed."""
    # With it, the first call of each command makes a histogram of 12 KiB.
    with embedded_valkey(latency_tracking="no") as server:
        yield server


@pytest.fixture
def scales(small_valkey: EmbeddedValkey) -> Iterator[valkey.Valkey]:
    """Give a plain client on that server, emptied."""
    with valkey.Valkey(port=small_valkey.port, socket_timeout=60) as plain:
        plain.flushall()
        yield plain


@pytest.fixture
def note_weight(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Put a line into the table of weights that ends the run."""
    rows = request.config.stash.setdefault(_ROWS, [])
    return lambda what, weighs: rows.append((what, weighs))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what was weighed."""
    rows = config.stash.get(_ROWS, [])
    if rows:
        terminalreporter.section("memory")
        for what, weighs in rows:
            terminalreporter.line(f"{what:<58} {weighs}")
