"""
Who admits how many: the table beside the speeds, for what is fast and admits more is no faster.

Three questions to each contender of the race that has the three limits. Eight processes try 200
times each at a limit of 100: how many get in? An adversary asks as it likes at a limit of 5: how
many does it get into one window at most? A client that is refused tries on: how many places does
that take from the account?
"""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Any, Final

from authguard.testing import embedded_valkey
from bench.figures import table
from bench.judges import Answer, most_within
from bench.logins import STARRED, Numbers, logins, plain, starred

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.logins import Login

__all__ = ["measure", "moments", "report"]

PROCESSES, TRIES = 8, 200
CROWDED: Final = Numbers(account=100, client=10_000, pair=10_000)

#: The adversary's limit, and its window in seconds; the others are too wide to matter.
NARROW: Final = Numbers(account=5, client=10_000, pair=10_000, window_s=2)

#: A client's small budget beside an account's large one, and how often it tries on.
UNEVEN: Final = Numbers(account=100, client=3, pair=10_000)
TRIED_ON: Final = 5


def _contenders(numbers: Numbers) -> list[Login]:
    return logins(numbers, floor=False)


def _hammer(number: int, urls: list[str], gate: Any, counts: Any) -> None:
    for it, url in zip(_contenders(CROWDED), urls, strict=True):
        ask = it.open(url)
        ask("warm-up", f"10.0.0.{number}")
        gate.wait()
        counts.put((it.name, sum(ask("crowded", f"10.0.0.{number}") for _ in range(TRIES))))


def crowded(urls: list[str]) -> dict[str, int]:
    """Ask for one account from all processes at once; count what was admitted."""
    context = multiprocessing.get_context("spawn")
    gate, counts = context.Barrier(PROCESSES, timeout=120), context.Queue()
    workers = [
        context.Process(target=_hammer, args=(number, urls, gate, counts), daemon=True)
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    admitted = {it.name: 0 for it in _contenders(CROWDED)}
    for _ in range(PROCESSES * len(admitted)):
        name, count = counts.get(timeout=120)
        admitted[name] += count
    for worker in workers:
        worker.join()
    return admitted


def moments(periods: int) -> dict[str, list[float]]:
    """
    Give an adversary's ways of asking: when, in seconds from an edge of the clock's windows on.

    Args:
        periods: How often each is repeated; a period is three windows.
    """
    window = float(NARROW.window_s)
    greedy = [number * 0.02 for number in range(int(periods * 3 * window / 0.02))]
    edges: list[float] = []
    late: list[float] = []
    for begin in (number * 3 * window for number in range(periods)):
        # All at the end of a window of the clock, and all at the beginning of the next …
        edges += [begin + window + at / 100 for at in (-6, -5, -4, -3, -2, -1, *range(1, 12))]
        # … or a window's worth late in one, and on without a pause until the next is over.
        late += [begin + window * 0.9 + number * 0.02 for number in range(int(window / 0.02))]
    return {"without a pause": greedy, "at the edges": edges, "late": late}


def adversary(urls: list[str], periods: int) -> dict[str, int]:
    """Ask all in the same seconds; give the most that each surely admitted within one window."""
    asks = {it.name: it.open(url) for it, url in zip(_contenders(NARROW), urls, strict=True)}
    answers: dict[tuple[str, str], list[Answer]] = {}
    plan = sorted((at, way) for way, times in moments(periods).items() for at in times)
    for ask in asks.values():
        ask("warm-up", "10.0.0.1")
    begin = (time.time() // NARROW.window_s + 1) * NARROW.window_s
    for moment, way in plan:
        time.sleep(max(0.0, begin + moment - time.time()))
        for name, ask in asks.items():
            before = time.time()
            admitted = ask(way, "10.0.0.1")
            answers.setdefault((name, way), []).append(Answer(before, time.time(), admitted))
    return {
        name: max(most_within(answers[name, way], NARROW.window_s) for way in moments(1))
        for name in asks
    }


def places_lost(urls: list[str]) -> dict[str, int]:
    """Let one client try on after its own limit refuses; count what the account's log lost."""
    return dict(_lost(urls))


def _lost(urls: list[str]) -> Iterator[tuple[str, int]]:
    for it, url in zip(_contenders(UNEVEN), urls, strict=True):
        ask = it.open(url)
        for _ in range(UNEVEN.client + TRIED_ON):
            ask("vera", "203.0.113.9")
        # Each from a client of its own, so that the account's log alone decides.
        free = sum(ask("vera", f"10.0.0.{number}") for number in range(UNEVEN.account))
        yield it.name, UNEVEN.account - UNEVEN.client - free


def measure(*, quick: bool) -> dict[str, Any]:
    """Ask the three questions."""
    with embedded_valkey() as server, plain(server.url) as admin:
        count = len(_contenders(NARROW))
        urls = [f"valkey://127.0.0.1:{server.port}/{number}" for number in range(count)]
        figures = {"crowded": crowded(urls)}
        admin.flushall()
        figures["adversary"] = adversary(urls, periods=1 if quick else 4)
        admin.flushall()
        figures["places_lost"] = places_lost(urls)
    return {
        name: {question: answers[name] for question, answers in figures.items()}
        for name in figures["crowded"]
    }


def report(figures: dict[str, Any]) -> None:
    """Print the table."""
    exact = {it.name: it.exact for it in _contenders(NARROW)}
    table(
        f"Who admits how many; right are {CROWDED.account}, {NARROW.account} and 0",
        (
            "",
            f"of {PROCESSES * TRIES} by {PROCESSES} processes, limit {CROWDED.account}",
            f"most in {NARROW.window_s} s, limit {NARROW.account}",
            f"places lost by {TRIED_ON} refusals",
        ),
        ((starred(name, exact[name]), *it.values()) for name, it in figures.items()),
        "Left out: PING and the no-op, which limit nothing; the default profile, whose limits are"
        " others.",
        STARRED,
    )
