"""
One login decision, beside PING and a script that does nothing: the time of each, and its work.

All decide on the same stream, on one server, in chunks, one after another in random order; each
in a database of its own, which is empty at the beginning of every repetition.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from authguard.testing import embedded_valkey
from bench.figures import percentile, ratios, shown, spread, table
from bench.logins import OURS, PING, STARRED, TO_ITS, TO_ITS_IS, logins, plain, starred, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import valkey

    from bench.logins import Ask, Login

__all__ = ["Work", "measure", "report", "work_of"]


@dataclass(slots=True)
class Work:
    """
    What a server has done so far.

    Attributes:
        reads: Commands that came from outside: those within scripts are not read from a socket.
        cpu_s: Its own CPU time, seconds.
    """

    reads: int
    cpu_s: float


def work_of(server: valkey.Valkey) -> Work:
    """Ask; this question is not counted."""
    told = server.info("stats", "cpu")
    cpu_s = told["used_cpu_user"] + told["used_cpu_sys"]
    return Work(told["total_reads_processed"] - 1, cpu_s)


@dataclass(slots=True)
class Lap:
    """
    What one contender has done in all rounds.

    Attributes:
        times_us: Of every decision.
        medians_us: Of every round's decisions.
        admitted: How many decisions admit.
        reads: Commands sent to the server.
        server_s: The server's CPU time, seconds.
        client_s: Our own, seconds.
        walls_s: Time that passed in every round, seconds.
    """

    times_us: list[float] = field(default_factory=list)
    medians_us: list[float] = field(default_factory=list)
    admitted: int = 0
    reads: int = 0
    server_s: float = 0.0
    client_s: float = 0.0
    walls_s: list[float] = field(default_factory=list)

    def run(self, ask: Ask, chunk: list[tuple[str, str]], server: valkey.Valkey) -> None:
        """Decide on a chunk of the stream."""
        times_ns = []
        clock = time.perf_counter_ns
        before = work_of(server)
        began_s, began_ns = time.process_time(), clock()
        for account, client in chunk:
            begin = clock()
            admitted = ask(account, client)
            times_ns.append(clock() - begin)
            self.admitted += admitted
        self.walls_s.append((clock() - began_ns) / 1e9)
        self.client_s += time.process_time() - began_s
        after = work_of(server)
        self.reads += after.reads - before.reads - 1
        self.server_s += after.cpu_s - before.cpu_s
        times_us = [time_ns / 1_000 for time_ns in times_ns]
        self.times_us += times_us
        self.medians_us.append(statistics.median(times_us))


def _chunks(length: int, chunk: int) -> Iterator[list[tuple[str, str]]]:
    asked = list(stream(length))
    for begin in range(0, length, chunk):
        yield asked[begin : begin + chunk]


def measure(*, quick: bool) -> dict[str, Any]:
    """Race all contenders; give the figures of each, and their ratios to PING and to ours."""
    repetitions, length, chunk = (1, 1_500, 150) if quick else (3, 20_000, 1_000)
    chosen = random.Random(21)
    all_of_them = logins()
    laps = {it.name: Lap() for it in all_of_them}
    with embedded_valkey() as server, plain(server.url) as admin:
        for _ in range(repetitions):
            admin.flushall()
            asks = {
                it.name: it.open(f"valkey://127.0.0.1:{server.port}/{number}")
                for number, it in enumerate(all_of_them)
            }
            for ask in asks.values():  # connect, load the scripts
                ask("warm-up", "203.0.113.9")
            for part in _chunks(length, chunk):
                for name in chosen.sample(list(asks), len(asks)):
                    laps[name].run(asks[name], part, admin)
    return {
        "decisions": repetitions * length,
        "rounds": len(laps[PING].medians_us),
        "ping_us": spread(laps[PING].medians_us, 1),
        "contenders": {it.name: _figures(it, laps) for it in all_of_them},
    }


def _figures(it: Login, laps: dict[str, Lap]) -> dict[str, Any]:
    lap, ping, ours = laps[it.name], laps[PING], laps[OURS]
    asked = len(lap.times_us)
    return {
        "exact": it.exact,
        "p50_us": round(statistics.median(lap.medians_us), 1),
        "p99_us": round(percentile(lap.times_us, 0.99), 1),
        "to_ping": spread(ratios(lap.medians_us, ping.medians_us)),
        "a_second": round(asked / sum(lap.walls_s)),
        "ours_to_it": spread(ratios(lap.walls_s, ours.walls_s)),
        "commands": round(lap.reads / asked, 2),
        "client_cpu_us": round(lap.client_s / asked * 1e6, 1),
        "server_cpu_us": round(lap.server_s / asked * 1e6, 1),
        "admitted": None if it.exact is None else round(lap.admitted / asked, 4),
    }


def report(figures: dict[str, Any]) -> None:
    """Print the table."""
    table(
        f"One login decision, {figures['decisions']:,} of each in {figures['rounds']} rounds",
        (
            *("", "p50 us", "p99 us", "x PING (8 rounds in 10)", "a second", TO_ITS),
            *("commands", "client CPU us", "server CPU us", "admitted"),
        ),
        (
            (starred(name, it["exact"]), *list(it.values())[1:])
            for name, it in figures["contenders"].items()
        ),
        f"x PING: its p50, to the PING's of the same round, {shown(figures['ping_us'])} us here;"
        " low where a PING is slow.",
        f"{TO_ITS_IS} p50, and a second, are of all rounds, and may order them otherwise.",
        "commands and CPU: for each decision; admitted: the share of all decisions.",
        STARRED,
    )
