"""Bytes in the store of one full log, as ``MEMORY USAGE`` tells them: key, value and expiry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from authguard.testing import embedded_valkey
from bench.contenders import LimitsPy
from bench.figures import table
from bench.logins import (
    LIMITS_MOVING,
    OURS,
    SETS,
    WINDOW_S,
    Numbers,
    ScriptOfSets,
    our_guard,
    plain,
)

if TYPE_CHECKING:
    import valkey

__all__ = ["ENTRIES", "measure", "report"]

ENTRIES: Final = (5, 100, 1_000)


def _ours(url: str, entries: int) -> None:
    numbers = Numbers(account=entries, client=10_000, pair=10_000)
    with our_guard(url, numbers) as guard:
        for number in range(entries):
            client = f"10.0.{number // 250}.{number % 250}"  # its tag is in the log
            guard.attempt("login", account="vera@example.test", client=client)


def _largest_bytes(server: valkey.Valkey) -> int:
    """Tell the size of the account's log: those of its clients have one entry each."""
    return max(server.memory_usage(key, samples=0) for key in server.scan_iter())


def measure(*, quick: bool) -> dict[str, Any]:  # noqa: ARG001 (it is quick)
    """Fill a log of each kind, for an account of seventeen letters."""
    figures: dict[str, Any] = {OURS: [], LIMITS_MOVING: [], SETS: []}
    with embedded_valkey() as server, plain(server.url) as client:
        for entries in ENTRIES:
            moving = LimitsPy(server.url, "moving-window", entries, WINDOW_S)
            sets = ScriptOfSets(client, entries, WINDOW_S)
            client.flushdb()
            _ours(server.url, entries)
            figures[OURS].append(_largest_bytes(client))
            for name, it in ((LIMITS_MOVING, moving), (SETS, sets)):
                client.flushdb()
                for _ in range(entries):
                    it.ask("account:vera@example.test")
                figures[name].append(_largest_bytes(client))
    return figures


def report(figures: dict[str, Any]) -> None:
    """Print the table."""
    columns = ("", *(f"{entries:,}" for entries in ENTRIES))
    rows = ((name, *sizes) for name, sizes in figures.items())
    table(
        "Bytes in the store of a full log, by its entries",
        columns,
        rows,
        "Left out: who keeps no log (throttled-py); ours with other settings, whose logs are the"
        " same.",
    )
