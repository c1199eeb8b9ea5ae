"""
A login decision where a million keys live, beside one where a thousand do.

Two servers side by side. In every round both are asked for people whose logs they hold. The small
one holds these and little else. In the large one they lie among strings of a full log's size, under
names like ours, where no cache has them at hand. ``limits`` shows what that costs anybody.
"""

from __future__ import annotations

import random
import secrets
import statistics
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from authguard.testing import embedded_valkey
from bench.figures import interleaved, ratios, spread, table, timed_us, told
from bench.logins import LIMITS_MOVING, OURS, WINDOW_S, logins, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import valkey

    from bench.logins import Login

__all__ = ["measure", "report"]

SMALL: Final = 1_000
KEYS_OF_ONE = 3
LOG_BYTES, SENT_AT_ONCE = 50, 5_000

#: Longest wait for a filled server to settle (s).
SETTLES_S: Final = 60.0


def fill(client: valkey.Valkey, keys: int, chosen: random.Random) -> None:
    """Store so many strings as large as full logs, with lives of up to fifteen minutes."""
    value = secrets.token_bytes(LOG_BYTES)
    for begin in range(0, keys, SENT_AT_ONCE):
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(min(SENT_AT_ONCE, keys - begin)):
                name = f"rl:v1:{{{chosen.getrandbits(32):08x}}}{chosen.getrandbits(88):022x}"
                pipeline.set(name, value, px=chosen.randrange(WINDOW_S * 200, WINDOW_S * 1_000))
            pipeline.execute()


def people(number: int, chunk: int) -> list[tuple[str, str]]:
    """Give those of a round: an account and a client each."""
    return [(f"user{number}-{it}", f"10.{number}.{it >> 8}.{it & 255}") for it in range(chunk)]


def decide(it: Login, url: str, on: Iterable[tuple[str, str]]) -> float:
    """Connect anew and decide once on each; give the median, in microseconds."""
    ask = it.open(url)
    for number in range(5):
        ask(f"warm-up{number}", f"10.255.0.{number}")
    return statistics.median(
        timed_us(lambda who=account, at=client: ask(who, at)) for account, client in on
    )


def settle(client: valkey.Valkey) -> None:
    """Wait until the table of its keys has grown: on its way, which is seldom, all is slower."""
    until = time.monotonic() + SETTLES_S
    while client.info("memory")["mem_overhead_db_hashtable_rehashing"]:
        if time.monotonic() > until:
            raise RuntimeError("the server's table of keys is still growing")
        time.sleep(0.1)


def measure(*, quick: bool) -> dict[str, Any]:
    """Fill both, and decide on both in turn."""
    large, rounds, chunk = (100_000, 6, 60) if quick else (1_000_000, 40, 150)
    chosen = random.Random(25)
    asked = [it for it in logins(floor=False) if it.name in (OURS, LIMITS_MOVING)]
    kept = len(asked) * KEYS_OF_ONE * chunk
    with (
        embedded_valkey() as crowded,
        embedded_valkey() as empty,
        plain(crowded.url) as client,
        plain(empty.url) as other,
    ):
        for number in range(rounds):
            fill(client, large // rounds - kept, chosen)
            for it in asked:
                decide(it, crowded.url, people(number, chunk))
        settle(client)
        keys = {"large": client.dbsize()}

        def in_large(it: Login, numbers: Iterator[int]) -> float:
            return decide(it, crowded.url, people(next(numbers), chunk))

        def in_small(it: Login, numbers: Iterator[int]) -> float:
            known = people(next(numbers), chunk)
            other.flushdb()
            fill(other, SMALL - KEYS_OF_ONE * chunk, chosen)
            decide(it, empty.url, known)
            keys["small"] = other.dbsize()
            return decide(it, empty.url, known)

        p50_us = interleaved(
            {
                f"{it.name}, {size}": partial(where, it, count())
                for it in asked
                for size, where in (("large", in_large), ("small", in_small))
            },
            rounds,
            random.Random(27),
        )
    return {
        "keys": keys,
        "p50_us": {name: spread(times, 1) for name, times in p50_us.items()},
        "large_to_small": {
            it.name: spread(ratios(p50_us[f"{it.name}, large"], p50_us[f"{it.name}, small"]), 3)
            for it in asked
        },
    }


def report(figures: dict[str, Any]) -> None:
    """Print the table."""
    table(
        "A decision by the number of live keys: {large:,} and {small:,}".format(**figures["keys"]),
        ("", "p50 us"),
        figures["p50_us"].items(),
    )
    for name, figure in figures["large_to_small"].items():
        told(f"{name}, its time with many keys to that with few", figure)
