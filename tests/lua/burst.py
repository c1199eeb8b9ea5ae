"""
A process of guessers for the tests of races, driven over its standard input and output.

    python burst.py URL SECRET POLICIES THREADS

Each line of input is ``START ACCOUNT``: at that instant of the machine's monotonic clock, which all
processes share, every thread makes one guess that fails. Each line of output is how many guesses
reached the check and how many were refused.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from authguard import Denied, Guard


def main(url: str, secret: str, policies: str, threads: int) -> None:
    """Guess until the input ends."""
    barrier = threading.Barrier(threads)

    def guess(start_s: float, account: str) -> bool:
        barrier.wait()
        time.sleep(max(0.0, start_s - time.monotonic()))
        try:
            guard.attempt("login", account=account, client="203.0.113.9")
        except Denied:
            return False
        return True

    with (
        Guard(url, secret=secret, policies=json.loads(policies), deadline_ms=10_000) as guard,
        ThreadPoolExecutor(threads) as pool,
    ):
        print("ready", flush=True)  # noqa: T201 (its answer)
        for line in sys.stdin:
            start_s, account = line.split()
            reached = list(pool.map(guess, [float(start_s)] * threads, [account] * threads))
            print(reached.count(True), reached.count(False), flush=True)  # noqa: T201 (likewise)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
