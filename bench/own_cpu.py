"""
What our Python adds to the bare call: CPU time of this process, beyond the same EVALSHA.

The calls of real decisions are recorded and sent again by the client library with its defaults.
What is beyond that is ours: names, keys, the deadline, reading the reply. :mod:`bench.profile`
times each socket call besides, on both sides, and so finds another ratio.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING, Any, Final

from authguard import Denied
from authguard.testing import embedded_valkey
from bench.figures import interleaved, spread, table
from bench.logins import Numbers, our_guard, plain, stream
from bench.recorded import recorded

if TYPE_CHECKING:
    from authguard import Guard

__all__ = ["measure", "report"]

#: Calls say until when somebody waits for the answer: time enough to send them again (ms).
PATIENT_MS: Final = 60_000


def _decide(guard: Guard, part: list[tuple[str, str]]) -> None:
    attempt = guard.attempt
    for account, client in part:
        with contextlib.suppress(Denied):
            attempt("login", account=account, client=client)


def _compare(url: str, numbers: Numbers | None, rounds: int, chunk: int) -> dict[str, Any]:
    chosen = random.Random(23)
    part, warm_up = list(stream(chunk)), [("warm-up", "203.0.113.9")]
    with plain(url) as client:

        def ours() -> float:
            client.flushdb()
            with our_guard(url, numbers) as guard:
                _decide(guard, warm_up)
                begin = time.process_time()
                _decide(guard, part)
                return (time.process_time() - begin) / chunk * 1e6

        def bare() -> float:
            with our_guard(url, numbers, deadline_ms=PATIENT_MS) as guard:
                _decide(guard, warm_up)
                calls = recorded(client, lambda: _decide(guard, part))
            if len(calls) < chunk:
                raise RuntimeError(f"{len(calls)} calls were sent for {chunk} decisions")
            client.flushdb()  # so that all is admitted again that was
            evalsha = client.evalsha
            begin = time.process_time()
            for sent in calls:
                evalsha(*sent)
            return (time.process_time() - begin) / chunk * 1e6

        cpu_us = interleaved({"ours": ours, "bare": bare}, rounds, chosen)
    beyond = [(a - b) / b for a, b in zip(cpu_us["ours"], cpu_us["bare"], strict=True)]
    return {
        "ours_us": spread(cpu_us["ours"], 1),
        "bare_us": spread(cpu_us["bare"], 1),
        "beyond_to_bare": spread(beyond),
    }


def measure(*, quick: bool) -> dict[str, Any]:
    """Compare over the three limits, and over the default profile."""
    rounds, chunk = (5, 200) if quick else (40, 1_000)
    with embedded_valkey() as server:
        return {
            "three limits": _compare(server.url, Numbers(), rounds, chunk),
            "default profile": _compare(server.url, None, rounds, chunk),
        }


def report(figures: dict[str, Any]) -> None:
    """Print the table."""
    table(
        "Our Python's own CPU a decision, beyond a bare EVALSHA with the same arguments",
        ("", "with ours us", "bare us", "(with - bare) / bare"),
        ((name, *it.values()) for name, it in figures.items()),
        "CPU time is not steady either: that of a kernel call follows the machine's mode.",
    )
