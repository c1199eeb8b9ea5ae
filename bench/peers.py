"""
Side by side with ``limits`` and ``throttled-py``: who admits how many, and who is right.

Usage: ``python -m bench peers [--quick] [--json FILE]``. All ask one real server of its own, in
turn and in random order, in the same seconds. Each is judged by the definition of its own
algorithm (:mod:`bench.judges`). Speeds are ratios of times within the same round.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import statistics
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import valkey

from authguard import Denied, Guard
from authguard.testing import embedded_valkey
from bench.contenders import (
    LIMIT,
    LIMITS,
    OURS,
    THROTTLED,
    WINDOW,
    InTurn,
    LimitsPy,
    Login,
    ThrottledPy,
    contenders,
)
from bench.judges import JUDGES, Answer, most_within
from bench.logins import SECRET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.contenders import Asks

__all__ = ["measure", "report"]

PROCESSES: Final = 4


# One bursty stream for all.


def stream(periods: int) -> list[float]:
    """
    Give the seconds at which all are asked, in periods of three windows.

    Each begins with two windows of a trickle, and a burst in the middle of it; then silence; then
    two bursts that meet at the edge to the next.
    """
    chosen = random.Random(11)
    times: list[float] = []
    for begin in (number * 3 * WINDOW for number in range(periods)):
        times += [begin + number * WINDOW / 20 for number in range(40)]
        edge = begin + 3 * WINDOW
        for burst in (begin + chosen.uniform(0.2, WINDOW - 0.3), edge - 0.1, edge + 0.01):
            times += [burst + chosen.uniform(0, 0.05) for _ in range(15)]
    return sorted(times)


def same_stream(guard: Guard, url: str, periods: int) -> list[dict[str, Any]]:
    """Ask all at once, in real time, from an even second on; judge what they answered."""
    chosen = random.Random(12)
    all_of_them = contenders(guard, url)
    answers: dict[str, list[Answer]] = {it.name: [] for it in all_of_them}
    for it in all_of_them:  # connect, load the scripts
        it.ask("warm-up")
    begin = (time.time() // WINDOW + 1) * WINDOW
    for moment in stream(periods):
        time.sleep(max(0.0, begin + moment - time.time()))
        for it in chosen.sample(all_of_them, len(all_of_them)):
            before = time.time()
            admitted = it.ask("stream")
            answers[it.name].append(Answer(before, time.time(), admitted))
    rows = []
    for it in all_of_them:
        verdict = JUDGES[it.definition](answers[it.name], LIMIT, WINDOW)
        rows.append(
            {
                "library": it.library,
                "algorithm": it.algorithm,
                "definition": it.definition,
                "clock": it.clock,
                "asked": len(answers[it.name]),
                "admitted": sum(answer.admitted for answer in answers[it.name]),
                "most_in_a_window": most_within(answers[it.name], WINDOW),
                "too_many": verdict.too_many,
                "too_few": verdict.too_few,
                "beyond": verdict.beyond,
            }
        )
    return rows


# Several processes at twice the limit.


def _hammer(url: str, times: int, gate: Any, counts: Any) -> None:
    with Guard(url, secret=SECRET, deadline_ms=10_000) as guard:
        all_of_them = contenders(guard, url, limit=100, window=3600)
        for it in all_of_them:
            it.ask("warm-up")
        for it in all_of_them:
            gate.wait()
            counts.put((it.name, sum(it.ask("hammered") for _ in range(times))))


def processes(url: str, times: int) -> dict[str, int]:
    """Ask from several processes, twice the limit of 100 in all; count what was admitted."""
    context = multiprocessing.get_context("spawn")
    gate, counts = context.Barrier(PROCESSES, timeout=60), context.Queue()
    workers = [
        context.Process(target=_hammer, args=(url, times, gate, counts)) for _ in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    admitted: dict[str, int] = {}
    with Guard(url, secret=SECRET) as guard:
        expected = PROCESSES * len(contenders(guard, url))
    for _ in range(expected):
        name, count = counts.get(timeout=60)
        admitted[name] = admitted.get(name, 0) + count
    for worker in workers:
        worker.join()
    return admitted


# Waits.


def waits(guard: Guard, url: str, trials: int) -> list[dict[str, Any]]:
    """Fill each within a window or so, note what it tells, and ask on until it admits."""
    chosen = random.Random(13)
    all_of_them = contenders(guard, url)
    early: dict[str, list[float]] = {it.name: [] for it in all_of_them}
    late: dict[str, list[float]] = {it.name: [] for it in all_of_them}
    for trial in range(trials):
        key = f"trial {trial}"
        for _ in range(LIMIT):
            time.sleep(chosen.uniform(0, 2 * WINDOW / LIMIT))
            for it in all_of_them:
                it.ask(key)
        told: dict[str, tuple[float, float, float]] = {}
        for it in all_of_them:
            before = time.time()
            while it.ask(key):
                before = time.time()
            wait = it.told(key)
            told[it.name] = before, time.time(), wait
        refusals = {name: before for name, (before, _, _) in told.items()}
        waiting = list(all_of_them)
        while waiting and time.time() < max(refusals.values()) + 3 * WINDOW:
            for it in list(waiting):
                asked = time.time()
                if not it.ask(key):
                    refusals[it.name] = asked
                    continue
                waiting.remove(it)
                before, after, wait = told[it.name]
                # It was surely still refused so long after it had told its wait …
                early[it.name].append(refusals[it.name] - after - wait)
                # … and at the latest admitted here.
                late[it.name].append(before + wait - time.time())
    return [
        {
            "library": it.library,
            "algorithm": it.algorithm,
            "refused_after_waiting": sum(by > 0.002 for by in early[it.name]),
            "trials": len(early[it.name]),
            "too_short_by_ms": round(1000 * max(0.0, *early[it.name])),
            "too_long_by_ms": round(1000 * max(0.0, *late[it.name])),
        }
        for it in all_of_them
    ]


# Two limits, of which one refuses.


def two_limits(guard: Guard, url: str) -> dict[str, int]:
    """Count the places that refused attempts used up in the limit that would have admitted them."""
    refused, large, small = 5, 100, 3
    lost = {}
    policies = {
        "try": {
            "limits": [
                {"name": "account", "by": ["account"], "sliding_log": f"{large}/1h"},
                {"name": "client", "by": ["client"], "sliding_log": f"{small}/1h"},
            ]
        }
    }
    with Guard(url, secret=SECRET, policies=policies, deadline_ms=10_000) as both:
        for _ in range(small + refused):
            with contextlib.suppress(Denied):
                both.attempt("try", account="vera", client="203.0.113.9")
        usage = both.usage("try", account="vera", client="203.0.113.9")
        lost[OURS] = next(it.used for it in usage if it.name == "account") - small
    accounts = contenders(guard, url, limit=large, window=3600)
    clients = contenders(guard, url, limit=small, window=3600)
    for library, algorithm in ((LIMITS, "moving-window"), (THROTTLED, "gcra")):
        by_account, by_client = (
            next(it for it in them if (it.library, it.algorithm) == (library, algorithm))
            for them in (accounts, clients)
        )
        for _ in range(small + refused):
            if by_account.ask("account vera"):
                by_client.ask("client 203.0.113.9")
        used = 0
        while by_account.ask("account vera"):
            used += 1
        lost[library] = large - used - small
    return lost


# Numbers off the beaten path, idle keys, and a worker whose clock is wrong.


def odd_buckets(guard: Guard, url: str, seconds: float) -> list[dict[str, Any]]:
    """Ask buckets of uneven rates and small bursts as often as can be."""
    kinds = ("token bucket", "leaky bucket")
    rows = []
    runs = [
        (limit, window, burst, it)
        for limit, window, burst in ((3, 2, 3), (50, 1, 10))
        for it in contenders(guard, url, limit=limit, window=window, burst=burst)
        if it.kind in kinds
    ]
    admitted, begin = [0] * len(runs), [0.0] * len(runs)
    for number, (limit, *_, it) in enumerate(runs):
        begin[number] = time.time()
        admitted[number] += it.ask(f"odd {limit}")
    until, last = time.time() + seconds, list(begin)
    while time.time() < until:
        for number, (limit, *_, it) in enumerate(runs):
            admitted[number] += it.ask(f"odd {limit}")
            last[number] = time.time()
    for number, (limit, window, burst, it) in enumerate(runs):
        rows.append(
            {
                "library": it.library,
                "algorithm": it.algorithm,
                "rate": f"{limit}/{window}s",
                "burst": burst,
                "admitted": admitted[number],
                "at_most": round(burst + limit / window * (last[number] - begin[number]), 1),
            }
        )
    return rows


def idle_keys(guard: Guard, url: str, client: valkey.Valkey) -> dict[str, float | None]:
    """Ask each once, at 100 in 15 minutes; tell for how long its keys stay (s; None: for ever)."""
    lives: dict[str, float | None] = {}
    for it in contenders(guard, url, limit=100, window=900):
        client.flushdb()
        it.ask("seldom")
        lives_ms = [client.pttl(key) for key in client.scan_iter()]
        lives[it.name] = None if -1 in lives_ms else round(max(lives_ms) / 1000, 1)
    return lives


def clock_ahead(guard: Guard, url: str) -> dict[str, bool]:
    """Tell who is admitted again at once in a worker whose clock is an hour ahead."""
    admitted, true_time = {}, time.time
    for it in contenders(guard, url, limit=10, window=900):
        while it.ask("worker"):
            pass
        with mock.patch("time.time", side_effect=lambda: true_time() + 3600):
            admitted[it.name] = it.ask("worker")
    return admitted


# Speed.


def speed(url: str, rounds: int, chunk: int) -> list[dict[str, Any]]:
    """Ask in chunks, in random order; give the ratios to ours of the same kind, round by round."""
    chosen = random.Random(14)
    policies = {
        "three": {
            "limits": [
                {"name": "pair", "by": ["account", "client"], "sliding_log": "100/1m"},
                {"name": "account", "by": ["account"], "sliding_log": "100/1m"},
                {"name": "client", "by": ["client"], "sliding_log": "100/1m"},
            ]
        }
    }
    # A refusal that is remembered asks no store, and is no decision to compare.
    guard = Guard(url, secret=SECRET, deadline_ms=10_000, remember_refusals_ms=0)
    login = Guard(url, secret=SECRET, policies=policies, deadline_ms=10_000, remember_refusals_ms=0)
    several = "three limits"
    raced: list[tuple[str, str, str, Asks]] = [
        (it.library, it.algorithm, it.kind, it)
        for it in contenders(guard, url, limit=100, window=60)
    ]
    raced += [
        (OURS, f"{several}: logs", several, Login(login)),
        (
            LIMITS,
            f"{several}: logs",
            several,
            InTurn(*(LimitsPy(url, "moving-window", 100, 60) for _ in range(3))),
        ),
        (
            THROTTLED,
            f"{several}: gcra",
            several,
            InTurn(*(ThrottledPy(url, "gcra", 100, 60, 100) for _ in range(3))),
        ),
    ]
    ours = {kind: (library, name) for library, name, kind, _ in raced if library == OURS}
    medians: dict[tuple[str, str], list[float]] = {it[:2]: [] for it in raced}
    for _ in range(rounds):
        for library, name, _, asks in chosen.sample(raced, len(raced)):
            took = []
            for _ in range(chunk):
                key = f"caller {chosen.randrange(1_000)}"
                begin = time.perf_counter()
                asks.ask(key)
                took.append(time.perf_counter() - begin)
            medians[library, name].append(statistics.median(took))
    login.close()
    guard.close()
    rows = []
    for library, name, kind, _ in raced:
        its_own = medians[library, name]
        ratios = sorted(a / b for a, b in zip(its_own, medians[ours[kind]], strict=True))
        tenth = len(ratios) // 10
        rows.append(
            {
                "library": library,
                "algorithm": name,
                "a_second": round(1 / statistics.median(its_own)),
                "time_to_ours": round(statistics.median(ratios), 2),
                "spread": [round(ratios[tenth], 2), round(ratios[-1 - tenth], 2)],
            }
        )
    return rows


def measure(*, quick: bool) -> dict[str, Any]:
    """Run all parts on one server."""
    with embedded_valkey() as server, valkey.Valkey(port=server.port) as client:
        guard, url = Guard(server.url, secret=SECRET, deadline_ms=10_000), server.url
        figures: dict[str, Any] = {
            "versions": {
                "limits": version("limits"),
                "throttled-py": version("throttled-py"),
                "valkey-py": version("valkey"),
                "redis-py": version("redis"),
                "server": client.info("server")["valkey_version"],
            },
            "stream": same_stream(guard, url, periods=1 if quick else 8),
            "processes": processes(url, times=2 * 100 // PROCESSES),
            "waits": waits(guard, url, trials=1 if quick else 15),
            "two_limits": two_limits(guard, url),
            "odd_buckets": odd_buckets(guard, url, seconds=1 if quick else 20),
            "clock_ahead": clock_ahead(guard, url),
            "speed": speed(url, rounds=4 if quick else 40, chunk=25 if quick else 100),
            "idle_keys": idle_keys(guard, url, client),
        }
        guard.close()
    return figures


def _print(title: str, columns: Sequence[tuple[str, int]], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table: the first two columns of text, then numbers."""
    print(f"\n{title}")
    print("".join(f"{name:{width}}" for name, width in columns))
    for row in rows:
        print("".join(f"{cell!s:{width}}" for cell, (_, width) in zip(row, columns, strict=True)))


def report(figures: dict[str, Any]) -> None:
    """Print the tables."""
    of = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    print(f"\nSide by side ({of})")
    who = (("library", 14), ("algorithm", 24))
    _print(
        f"{LIMIT} in {WINDOW} s, one stream for all; of the answers, how many are wrong by the"
        " algorithm's own definition\n  (too many: admitted, where it refuses, by so many places"
        " beyond at most; too few: refused, where it admits;\n  most: admitted within"
        f" {WINDOW} s)",
        (
            *who,
            ("clock", 24),
            ("asked", 7),
            ("admitted", 10),
            ("most", 6),
            ("too many", 10),
            ("too few", 9),
            ("beyond", 6),
        ),
        [[*(row[key] for key in row if key != "definition")] for row in figures["stream"]],
    )
    _print(
        f"{PROCESSES} processes at twice a limit of 100: admitted",
        (("", 38), ("", 8)),
        list(figures["processes"].items()),
    )
    _print(
        "Who waited as told: how often refused again; how much too short or long the wait was told"
        " at worst, ms",
        (*who, ("refused", 9), ("of", 5), ("too short", 11), ("too long", 8)),
        [[*row.values()] for row in figures["waits"]],
    )
    _print(
        "Two limits: places of the account's that 5 attempts used up which the client's refused",
        (("library", 14), ("places", 8)),
        list(figures["two_limits"].items()),
    )
    _print(
        "Buckets asked without a pause: admitted, of burst + rate * time at most",
        (*who, ("rate", 8), ("burst", 7), ("admitted", 10), ("at most", 8)),
        [[*row.values()] for row in figures["odd_buckets"]],
    )
    _print(
        "In a worker whose clock is an hour ahead, a caller who is refused …",
        (("", 38), ("", 12)),
        [
            (name, "gets in" if admitted else "stays out")
            for name, admitted in figures["clock_ahead"].items()
        ],
    )
    _print(
        "A caller who came once, at 100 in 15 minutes: the key stays for",
        (("", 38), ("", 12)),
        [
            (name, "ever" if life is None else f"{life} s")
            for name, life in figures["idle_keys"].items()
        ],
    )
    _print(
        "Speed: the median time of a decision, to ours for the same kind in the same round\n"
        "  (below 1: faster than ours; a second: 1 / median time)",
        (*who, ("a second", 10), ("time / ours", 13), ("8 rounds in 10", 14)),
        [[*row.values()] for row in figures["speed"]],
    )
