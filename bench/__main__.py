"""
What one login decision costs, against a PING and a no-op EVALSHA; and ours beside its peers.

Usage: ``python -m bench [decision | peers] [--quick] [--json FILE]``; without a word, both. Rounds
are interleaved in random order, so that slow and fast minutes of the machine strike all alike; the
ratio is the figure. The peers are other libraries, which the extra ``bench`` installs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import valkey

from authguard import Denied, Guard
from authguard.testing import embedded_valkey

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "a secret of the benchmark, 32 bytes or more"
ACCOUNTS, CLIENTS = 5_000, 1_000
FIVE_LIMITS = {
    "login": {
        "limits": [
            {"name": "pair", "by": ["account", "client"], "sliding_log": "10/15m"},
            {"name": "account", "by": ["account"], "sliding_log": "5/15m", "lockout": "15m"},
            {"name": "day", "by": ["account"], "sliding_log": "20/24h"},
            {"name": "client", "by": ["client"], "sliding_log": "100/15m"},
            {"name": "network", "by": ["network"], "sliding_log": "400/15m"},
        ]
    }
}
NO_OP = "return 1"


def percentile(times_us: list[float], share: float) -> float:
    """Give the value below which this share of the times lies."""
    return sorted(times_us)[int(share * (len(times_us) - 1))]


def evalsha_calls(client: valkey.Valkey) -> tuple[int, int]:
    """Count the EVALSHAs the server has run, and all commands that came from outside."""
    stats = client.info("commandstats")
    return stats.get("cmdstat_evalsha", {}).get("calls", 0), stats.get("cmdstat_eval", {}).get(
        "calls", 0
    )


def measure(rounds: int, chunk: int) -> dict[str, Any]:
    """Run the three side by side on one server and one connection."""
    chosen = random.Random(7)  # seeded: every run asks the same
    with embedded_valkey() as server:
        guard = Guard(server.url, secret=SECRET, policies=FIVE_LIMITS, deadline_ms=5_000)
        pool = guard._engine.store._pool  # type: ignore[attr-defined]  # the very same connection
        client = valkey.Valkey(connection_pool=pool)
        sha = client.script_load(NO_OP)
        keys = [f"rl:v1:{{bench}}{number:022d}" for number in range(6)]

        def decide() -> None:
            account = f"user{chosen.randrange(ACCOUNTS)}"
            number = chosen.randrange(CLIENTS)
            with contextlib.suppress(Denied):
                guard.attempt("login", account=account, client=f"10.0.{number % 4}.{number // 4}")

        contenders: dict[str, Callable[[], object]] = {
            "PING": client.ping,
            "no-op EVALSHA": lambda: client.evalsha(sha, len(keys), *keys, "", 1, b"12345", "[]"),
            "login decision, 5 limits": decide,
        }
        times_us: dict[str, list[float]] = {name: [] for name in contenders}
        medians_us: dict[str, list[float]] = {name: [] for name in contenders}
        for contender in contenders.values():
            contender()
        for _ in range(rounds):
            for name in chosen.sample(list(contenders), len(contenders)):
                contender = contenders[name]
                chunk_us = []
                for _ in range(chunk):
                    start = time.perf_counter_ns()
                    contender()
                    chunk_us.append((time.perf_counter_ns() - start) / 1000)
                times_us[name] += chunk_us
                medians_us[name].append(statistics.median(chunk_us))
        before = evalsha_calls(client)
        for _ in range(chunk):
            decide()
        after = evalsha_calls(client)
        flood = flood_of_refusals(guard, client)
        guard.close()
    ping, no_op, decision = (statistics.median(times_us[name]) for name in contenders)
    ratios = [
        a / b
        for a, b in zip(medians_us["login decision, 5 limits"], medians_us["PING"], strict=True)
    ]
    return {
        "p50_us": {name: round(statistics.median(times), 1) for name, times in times_us.items()},
        "p99_us": {name: round(percentile(times, 0.99), 1) for name, times in times_us.items()},
        "decision_to_ping": round(decision / ping, 2),
        "decision_to_ping_spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "decision_to_no_op_evalsha": round(decision / no_op, 2),
        "requests_a_decision": (sum(after) - sum(before)) / chunk,
        "flood": flood,
    }


def flood_of_refusals(guard: Guard, client: valkey.Valkey) -> dict[str, int]:
    """Refuse 10,000 tries on one account from one client; the store must not grow by a byte."""
    who = {"account": "flooded", "client": "203.0.113.9"}
    refused = 0
    while refused == 0:
        try:
            guard.attempt("login", **who)
        except Denied:
            refused = 1
    sizes = [sum(client.memory_usage(key) for key in client.scan_iter())]
    for _ in range(10_000):
        try:
            guard.attempt("login", **who)
        except Denied:
            refused += 1
    sizes.append(sum(client.memory_usage(key) for key in client.scan_iter()))
    return {"refused": refused, "bytes_before": sizes[0], "bytes_after": sizes[1]}


def report(figures: dict[str, Any]) -> None:
    """Print the table of what a decision costs."""
    print(f"{'':26}{'p50 µs':>9}{'p99 µs':>9}")
    for name, p50_us in figures["p50_us"].items():
        print(f"{name:26}{p50_us:9.1f}{figures['p99_us'][name]:9.1f}")
    low, high = figures["decision_to_ping_spread"]
    print(
        f"\ndecision / PING            {figures['decision_to_ping']:.2f}  (rounds {low} to {high})"
    )
    print(f"decision / no-op EVALSHA   {figures['decision_to_no_op_evalsha']:.2f}")
    print(f"requests a decision        {figures['requests_a_decision']:.2f}")
    flood = figures["flood"]
    print(
        f"{flood['refused']:,} refused tries: {flood['bytes_before']:,} bytes in the store before,"
        f" {flood['bytes_after']:,} after"
    )


def main() -> None:
    """Measure, print a table, and write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("part", nargs="?", choices=("decision", "peers"), help="default: both")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, to see it run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    chosen = parser.parse_args()
    figures: dict[str, Any] = {}
    if chosen.part != "peers":
        figures = measure(rounds=4 if chosen.quick else 40, chunk=500)
        report(figures)
    if chosen.part != "decision":
        try:
            from bench import peers  # noqa: PLC0415 (its libraries are an extra)
        except ModuleNotFoundError as missing:
            parser.error(f"no {missing.name} here; pip install -e '.[bench]', or ask for decision")

        print()
        figures["peers"] = peers.compare(quick=chosen.quick)
        peers.report(figures["peers"])
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
