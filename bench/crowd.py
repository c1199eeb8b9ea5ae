"""
The same login from eight threads of one process, and from four processes: decisions a second.

In every round each contender decides on the same stream, shared out evenly, in a database that is
empty at its beginning; one after another in random order.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from authguard.testing import embedded_valkey
from bench.figures import interleaved, ratios, spread, table
from bench.logins import (
    DEFAULT_PROFILE,
    NO_OP,
    OURS,
    STARRED,
    TO_ITS,
    TO_ITS_IS,
    logins,
    plain,
    starred,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.logins import Ask

__all__ = ["PROCESSES", "THREADS", "measure", "report"]

THREADS: Final = 8
PROCESSES: Final = 4


def _warm(ask: Ask) -> None:
    ask("warm-up", "203.0.113.9")


def _decide(ask: Ask, part: list[tuple[str, str]]) -> None:
    for account, client in part:
        ask(account, client)


def by_threads(ask: Ask, length: int) -> float:
    """Share a stream out among threads; give decisions a second."""
    asked = list(stream(length))
    gate = threading.Barrier(THREADS + 1)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        _warm(ask)  # a connection of its own, where the library has one for each thread
        gate.wait()
        try:
            _decide(ask, asked[number::THREADS])
        except BaseException as error:  # noqa: BLE001 (raised by whoever waits)
            failed.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for worker in workers:
        worker.start()
    gate.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - begin
    if failed:
        raise failed[0]
    return length / took


def _process(number: int, pipe: Any, gate: Any) -> None:
    all_of_them = {it.name: it for it in logins()}
    while (task := pipe.recv()) is not None:
        name, url, length = task
        ask = all_of_them[name].open(url)
        part = list(stream(length))[number::PROCESSES]
        _warm(ask)
        gate.wait()
        begin = time.monotonic()
        _decide(ask, part)
        pipe.send((begin, time.monotonic()))


class Processes:
    """The processes, started once; each takes a contender's name and decides on its share."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._gate = context.Barrier(PROCESSES, timeout=120)  # kept: they open it by its name
        self._pipes = []
        self._workers = []
        for number in range(PROCESSES):
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=_process, args=(number, theirs, self._gate), daemon=True
            )
            worker.start()
            theirs.close()  # so that a worker that ends is noticed
            self._pipes.append(ours)
            self._workers.append(worker)

    def decide(self, name: str, url: str, length: int) -> float:
        """Give decisions a second, from the first that begins to the last that ends."""
        for pipe in self._pipes:
            pipe.send((name, url, length))
        spans = [pipe.recv() for pipe in self._pipes]
        return length / (max(end for _, end in spans) - min(begin for begin, _ in spans))

    def close(self) -> None:
        """Let them end."""
        for pipe, worker in zip(self._pipes, self._workers, strict=True):
            pipe.send(None)
            worker.join()


def measure(*, quick: bool) -> dict[str, Any]:
    """Run both crowds."""
    rounds, length = (2, 800) if quick else (4, 20_000)
    chosen = random.Random(22)
    # The script that does nothing, and ours over more limits, tell nothing new here.
    all_of_them = [it for it in logins() if it.name not in (NO_OP, DEFAULT_PROFILE)]
    exact = {it.name: it.exact for it in all_of_them}
    figures: dict[str, Any] = {"decisions": length, "rounds": rounds}
    with embedded_valkey() as server, plain(server.url) as admin:

        def fresh(decide: Callable[[], float]) -> float:
            admin.flushall()
            return decide()

        figures["threads"] = _rows(
            interleaved(
                {
                    it.name: lambda it=it: fresh(lambda: by_threads(it.open(server.url), length))
                    for it in all_of_them
                },
                rounds,
                chosen,
            ),
            exact,
        )
        processes = Processes()
        figures["processes"] = _rows(
            interleaved(
                {
                    it.name: lambda it=it: fresh(
                        lambda: processes.decide(it.name, server.url, length)
                    )
                    for it in all_of_them
                },
                rounds,
                chosen,
            ),
            exact,
        )
        processes.close()
    return figures


def _rows(a_second: dict[str, list[float]], exact: dict[str, bool | None]) -> dict[str, Any]:
    return {
        name: {
            "exact": exact[name],
            "a_second": spread(speeds, 0),
            "ours_to_it": spread(ratios(a_second[OURS], speeds)),
        }
        for name, speeds in a_second.items()
    }


def report(figures: dict[str, Any]) -> None:
    """Print both tables."""
    for kind, count in (("threads", THREADS), ("processes", PROCESSES)):
        table(
            f"{count} {kind}, {figures['rounds']} rounds of {figures['decisions']:,} decisions",
            ("", "decisions a second", TO_ITS),
            (
                (starred(name, it["exact"]), it["a_second"], it["ours_to_it"])
                for name, it in figures[kind].items()
            ),
            TO_ITS_IS,
            STARRED,
        )
