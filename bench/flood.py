"""
A flood of tries that are refused, against one worker: how many a second, and what it costs.

Asked of a guard, and as requests to a Flask app. Once on one account from one client, and once on
another account with every try, which the client's limit refuses. With refusals remembered in the
process, as a guard comes, and without, to compare with. What is remembered answers the same attempt
alone, so another account is asked of the store each time, in both ways: commands are tries there.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from authguard import Denied, Guard
from authguard.testing import embedded_valkey
from bench.figures import table
from bench.logins import SECRET, Numbers, plain, policy
from bench.race import work_of
from bench.web import call, environ, our_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

__all__ = ["measure", "report"]

CLIENT: Final = "198.51.100.7"
#: Tries one account's login; tells whether it was admitted.
Try: TypeAlias = "Callable[[str], bool]"

ONE, MANY = "one account", "another account each time"


def _resident_bytes() -> int:
    """Tell how much of this process is in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _stored_bytes(server: valkey.Valkey) -> int:
    """Tell how much all keys take in the store."""
    return sum(server.memory_usage(key) for key in server.scan_iter())


def _guard_tries(url: str, settings: dict[str, Any]) -> Try:
    guard = Guard(url, secret=SECRET, policies=policy(Numbers()), deadline_ms=10_000, **settings)

    def admitted(account: str) -> bool:
        try:
            guard.attempt("login", account=account, client=CLIENT)
        except Denied:
            return False
        return True

    return admitted


def _flask_tries(url: str, settings: dict[str, Any]) -> Try:
    app = our_app(url, **{f"AUTHGUARD_{name.upper()}": value for name, value in settings.items()})

    def admitted(account: str) -> bool:
        status, _, _ = call(app, environ(account, CLIENT))
        if status[:3] not in ("401", "429"):
            raise RuntimeError(f"status {status}")
        return status.startswith("401")

    return admitted


DOORS: Final = {"a guard": _guard_tries, "Flask": _flask_tries}


def _accounts(kind: str) -> Iterator[str]:
    return repeat("full") if kind == ONE else (f"user{number}" for number in count())


def flood(url: str, door: str, kind: str, tries: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Fill the limits, and try on."""
    numbers = Numbers()
    with plain(url) as admin:
        admin.flushall()
        admitted = DOORS[door](url, settings)
        for number in range(numbers.client - numbers.account):
            admitted(f"guessed{number}")
        for _ in range(numbers.account):
            admitted("full")
        accounts = _accounts(kind)
        for account in islice(accounts, tries // 10):  # until its memory has what it takes
            admitted(account)
        resident, stored = _resident_bytes(), _stored_bytes(admin)
        before, begin = work_of(admin), time.perf_counter()
        wrongly = sum(admitted(account) for account in islice(accounts, tries))
        took_s, after = time.perf_counter() - begin, work_of(admin)
        return {
            "tries": tries,
            "admitted": wrongly,
            "a_second": round(tries / took_s),
            "seconds": round(took_s, 2),
            "commands": after.reads - before.reads - 1,
            "process_grew_kib": (_resident_bytes() - resident) // 1024,
            "store_grew_bytes": _stored_bytes(admin) - stored,
        }


def measure(*, quick: bool) -> dict[str, Any]:
    """Flood a worker of its own each time: what others left in memory would hide its growth."""
    tries = 4_000 if quick else 100_000
    modes: tuple[tuple[str, int, dict[str, Any]], ...] = (
        ("remembering", tries, {}),
        ("asking", tries // 5, {"remember_refusals_ms": 0}),
    )
    figures = {}
    with embedded_valkey() as server:
        for mode, so_many, settings in modes:
            for door in DOORS:
                for kind in (ONE, MANY):
                    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as worker:
                        done = worker.submit(flood, server.url, door, kind, so_many, settings)
                        figures[f"{door}, {kind}, {mode}"] = done.result()
    return figures


def report(figures: dict[str, Any]) -> None:
    """Print the table."""
    table(
        "A flood of refused tries against one worker",
        (
            *("", "tries", "admitted", "a second", "s", "commands"),
            *("process grew KiB", "store grew bytes"),
        ),
        ((name, *it.values()) for name, it in figures.items()),
        "commands: sent to the server. A refusal is remembered for the same attempt alone: another"
        " account costs one each time.",
    )
