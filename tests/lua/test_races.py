"""Rule 1, reserve before verify: however many guesses arrive at once, the limit is never passed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from tests.lua.conftest import Door

ROUNDS = 20
FIVE_AND_A_LOCK = {
    "limits": [
        {"name": "account", "by": ["account"], "sliding_log": "5/15m", "lockout": "15m"},
        {"name": "client", "by": ["client"], "sliding_log": "1000/15m"},
    ]
}
THOUSAND = {
    "limits": [
        {"name": "account", "by": ["account"], "sliding_log": "1000/15m"},
        {"name": "client", "by": ["client"], "sliding_log": "1000/15m"},
    ]
}


class Crowd:
    """Threads that knock together, and a spy that counts who reached the password check."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._pool = ThreadPoolExecutor(size)
        self._barrier = threading.Barrier(size)
        self._count = threading.Lock()

    def knock(
        self, door: Door, client: Callable[[int], str] = lambda _: "203.0.113.9", **how: Any
    ) -> tuple[int, int]:
        """Give how many reached the check and how many were refused; any other error is raised."""
        verified = 0

        def one(number: int, *, succeeds: bool = False, account: str = "vera") -> bool:
            nonlocal verified
            self._barrier.wait()
            try:
                with door.attempt(account, client(number)) as attempt:
                    with self._count:
                        verified += 1
                    if succeeds:
                        attempt.succeed()
            except Denied:
                return False
            return True

        answers = list(self._pool.map(lambda number: one(number, **how), range(self.size)))
        assert answers.count(True) == verified
        return verified, answers.count(False)

    def go_home(self) -> None:
        """End the threads."""
        self._pool.shutdown()


@pytest.fixture
def crowd() -> Iterator[Callable[[int], Crowd]]:
    """Make crowds; their threads end with the test."""
    with ExitStack() as stack:

        def make(size: int) -> Crowd:
            made = Crowd(size)
            stack.callback(made.go_home)
            return made

        yield make


@pytest.fixture
def processes(valkey_url: str) -> Iterator[Callable[..., Callable[[str], list[tuple[int, int]]]]]:
    """Start processes of guessers (burst.py) that all guess at one instant."""
    started: list[subprocess.Popen[str]] = []

    def start(
        count: int, threads: int, login: dict[str, object]
    ) -> Callable[[str], list[tuple[int, int]]]:
        script = str(Path(__file__).with_name("burst.py"))
        policies = json.dumps({"login": login})
        started.extend(
            subprocess.Popen(
                [sys.executable, script, valkey_url, SECRET, policies, str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )
            for _ in range(count)
        )
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

        def knock(account: str) -> list[tuple[int, int]]:
            start_s = time.monotonic() + 0.05
            for process in started:
                assert process.stdin is not None
                print(start_s, account, file=process.stdin, flush=True)
            answers = [process.stdout.readline().split() for process in started if process.stdout]
            return [(int(verified), int(refused)) for verified, refused in answers]

        return knock

    yield start
    for process in started:
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_a_hundred_threads_verify_five_every_time(
    door: Callable[..., Door], crowd: Callable[[int], Crowd]
) -> None:
    """B001: of 100 guesses at once with a limit of 5, 5 reach the check, in each of 20 rounds."""
    login = door(("account", "5/15m", {"lockout": "15m"}), ("client", "1000/15m"))
    guessers = crowd(100)
    for number in range(ROUNDS):
        assert guessers.knock(login, account=f"vera{number}") == (5, 95)
        verdict = login.verdict(account=f"vera{number}")
        assert (verdict.locked, verdict.remaining) == (True, 0)


def test_four_processes_verify_five_every_time(
    processes: Callable[..., Callable[[str], list[tuple[int, int]]]],
) -> None:
    """B001: of 4 x 25 guesses from four processes, 5 reach the check, in each of 20 rounds."""
    knock = processes(4, 25, FIVE_AND_A_LOCK)
    for number in range(ROUNDS):
        answers = knock(f"vera{number}")
        assert sum(verified for verified, _ in answers) == 5
        assert sum(refused for _, refused in answers) == 95


def test_no_failure_is_lost_between_threads(
    door: Callable[..., Door], crowd: Callable[[int], Crowd]
) -> None:
    """B002: 50 failures at once count as 50."""
    login = door(("account", "1000/15m"), ("client", "1000/15m"))
    assert crowd(50).knock(login) == (50, 0)
    assert login.used("account") == 50
    assert login.used("client") == 50


def test_no_failure_is_lost_between_processes(
    processes: Callable[..., Callable[[str], list[tuple[int, int]]]], door: Callable[..., Door]
) -> None:
    """B002: 2 x 25 failures of two processes count as 50."""
    assert processes(2, 25, THOUSAND)("vera") == [(25, 0), (25, 0)]
    login = door(("account", "1000/15m"), ("client", "1000/15m"))
    assert login.used("account") == 50
    assert login.used("client") == 50


def test_parallel_sign_ins_are_no_attack(
    door: Callable[..., Door], crowd: Callable[[int], Crowd]
) -> None:
    """B006: 5 right passwords at once, 20 in turn, 20 at once: never a lock that stays."""
    login = door(("account", "5/15m", {"lockout": "15m"}), ("client", "1000/15m"))
    assert crowd(5).knock(login, succeeds=True) == (5, 0)
    assert (login.verdict().locked, login.used()) == (False, 0)
    for _ in range(20):
        login.sign_in()
    assert (login.verdict().locked, login.used()) == (False, 0)
    verified, _ = crowd(20).knock(login, succeeds=True)
    assert verified >= 5
    assert (login.verdict().locked, login.used()) == (False, 0)
    login.sign_in()


def test_one_client_gets_the_pair_limit(
    door: Callable[..., Door], crowd: Callable[[int], Crowd]
) -> None:
    """A31: of 50 guesses in one instant from one address, 5 reach the check (default profile)."""
    login = door()
    assert crowd(50).knock(login) == (5, 45)
    assert login.refusal().refused_by == ("pair",)


def test_fifty_clients_get_the_account_limit(
    door: Callable[..., Door], crowd: Callable[[int], Crowd]
) -> None:
    """A32: of 50 guesses at one account from 50 addresses, 10 are checked (default profile)."""
    login = door()
    assert crowd(50).knock(login, lambda number: f"198.51.{number}.7") == (10, 40)
    assert login.refusal(client="203.0.113.9").refused_by == ("account",)


@pytest.mark.slow
def test_expiry_in_mid_race_is_no_error(
    door: Callable[..., Door], crowd: Callable[[int], Crowd], client: valkey.Valkey
) -> None:
    """B005: while logs and locks of 1 s expire under 4 threads, each answer is a clear verdict."""
    login = door(("account", "5/1s", {"lockout": "1s"}))
    longest_ms = {False: 1000, True: 2000}  # the log its window; the lock its length and the quiet
    guessers = crowd(4)
    verified, began_s = 0, time.monotonic()
    # Three lives of the log at least, however long a machine takes to a second.
    while time.monotonic() < began_s + 3.3 or verified < 15:
        verified += guessers.knock(login)[0]
        for key in client.scan_iter():
            life_ms = client.pttl(key)  # -2: gone since; 0: its last millisecond
            assert life_ms == -2 or 0 <= life_ms <= longest_ms[key.endswith(b"!")]
    time.sleep(login.verdict().reset_after_ms / 1000)
    fresh = login.fail()
    assert login.used() == 1
    expiries = [client.pexpiretime(key) for key in client.scan_iter() if not key.endswith(b"!")]
    assert expiries == [fresh.now_ms + 1000]
