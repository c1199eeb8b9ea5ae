"""Rule 7: the clock is the store's; one that steps back refuses for a while, and admits no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard._core.calls import ScriptCall
    from tests.conftest import Clock
    from tests.lua.conftest import Door

T = TypeVar("T")
MINUTE = 60_000

#: A worker whose own clock is wrong by so many seconds; it tries each time a line comes.
WORKER = """
import sys, time, datetime
skew_s = float(sys.argv[3])
real_s, real_ns = time.time, time.time_ns
time.time = lambda: real_s() + skew_s
time.time_ns = lambda: real_ns() + int(skew_s * 10**9)
from authguard import Denied, Guard
policies = {"login": {"limits": [
    {"name": "account", "by": ["account"], "sliding_log": "5/15m", "lockout": "15m"}]}}
guard = Guard(
    sys.argv[1], secret=sys.argv[2], policies=policies, deadline_ms=10_000, remember_refusals_ms=0
)
for _ in sys.stdin:
    try:
        decision = guard.attempt("login", account="vera", client="203.0.113.9").decision
    except Denied as denied:
        decision = denied.decision
    print(int(decision.allowed), decision.now_ms, decision.retry_after_ms, flush=True)
guard.close()
"""


@pytest.mark.parametrize("back_ms", [1, 1000, 10 * MINUTE, 10_000 * MINUTE])
def test_a_log_under_a_clock_that_steps_back(
    door: Callable[..., Door], clock: Clock, back_ms: int
) -> None:
    """Rule 7: a full log refuses for at most one window more, and then admits its limit."""
    login = door(("account", "5/15m"), clock=clock)
    login.fail(5)
    clock.advance(-back_ms)
    assert login.refusal().retry_after_ms == 15 * MINUTE
    clock.advance(15 * MINUTE - 1)
    login.refusal()
    clock.advance(1)
    login.fail(5)
    login.refusal()


def test_stepping_back_again_and_again_admits_no_more(
    door: Callable[..., Door], clock: Clock
) -> None:
    """Rule 7: whatever the clock does within one true window, five are admitted and no more."""
    login = door(("account", "5/15m"), clock=clock)
    admitted = 0
    for step_ms in [-1, 7, -3 * MINUTE, 2 * MINUTE, -60 * MINUTE, 5, -5, 3 * MINUTE, -1, 1] * 3:
        clock.advance(step_ms)
        if login.guard.peek("login", account="vera", client="203.0.113.9").allowed:
            login.fail()
            admitted += 1
        else:
            login.refusal()
    assert admitted == 5


@pytest.mark.parametrize("back_ms", [1, 10 * MINUTE, 10_000 * MINUTE])
def test_a_lock_under_a_clock_that_steps_back(
    door: Callable[..., Door], clock: Clock, back_ms: int
) -> None:
    """Rule 7: a lock refuses for at most one lockout more, told once and kept to."""
    login = door(("account", "5/15m", {"lockout": "1h"}), clock=clock)
    login.fail(5)
    clock.advance(-back_ms)
    assert login.refusal().retry_after_ms == 60 * MINUTE
    clock.advance(30 * MINUTE)
    assert login.refusal().retry_after_ms == 30 * MINUTE
    clock.advance(30 * MINUTE)
    login.fail(5)
    login.refusal()


@pytest.mark.parametrize("cleared", [False, True])
def test_an_ended_lock_stays_ended(door: Callable[..., Door], clock: Clock, cleared: bool) -> None:
    """Rule 7: a clock that falls back behind the end of a lock gives nobody more tries."""
    login = door(("account", "3/15m", {"lockout": "15m"}), clock=clock)
    login.fail(3)
    clock.advance(15 * MINUTE)
    login.fail(2)
    clock.advance(-1000)
    assert login.used() == 2
    if cleared:
        login.guard.clear("login", account="vera")
        assert (login.used(), login.verdict().locked) == (0, False)
        login.fail(2)
    assert login.fail().verdicts[0].lock_set
    login.refusal()


@pytest.mark.parametrize("refused_between", [False, True])
def test_a_lifted_lock_under_a_clock_that_stepped_back(
    door: Callable[..., Door], clock: Clock, refused_between: bool
) -> None:
    """Rule 7: the end of the lock before, put ahead by the step, drops nothing when it comes."""
    login = door(("account", "3/2s", {"lockout": "3s"}), clock=clock)
    login.fail(3)
    clock.advance(3_100)
    login.fail(2)
    owner = login.attempt(client="198.51.100.7")
    clock.advance(-1_000)
    if refused_between:
        login.refusal()
    owner.succeed()
    clock.advance(900)
    assert login.used() >= 2
    login.fail()
    login.refusal()


class Listening(ValkeyStore):
    """A store that notes the clock of every call."""

    def __init__(self, url: str) -> None:
        super().__init__(url, deadline_ms=PATIENT_MS)
        self.clocks: list[object] = []

    def run(self, call: ScriptCall[T]) -> T:
        """Note and run."""
        self.clocks.append(call.args[0])
        return super().run(call)


def test_no_call_tells_the_time(door: Callable[..., Door], valkey_url: str) -> None:
    """B127: without a clock of its own the guard passes none, in any verb."""
    listening = Listening(valkey_url)
    login = door(("account", "5/15m"), store=listening)
    login.fail()
    login.sign_in()
    login.attempt().release()
    login.used()
    login.guard.clear("login", account="vera")
    assert listening.clocks == [""] * 7


def test_workers_with_different_clocks(valkey_url: str, client: valkey.Valkey) -> None:
    """B127, B130: workers 10 s early, right, and 10 s late, in three time zones, decide as one."""
    zones = {"-10": "Pacific/Kiritimati", "0": "UTC", "10": "America/St_Johns"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, valkey_url, SECRET, skew_s],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"TZ": zone},
        )
        for skew_s, zone in zones.items()
    ]
    answers = []
    for number in range(12):
        worker = workers[number % 3]
        assert worker.stdin is not None
        assert worker.stdout is not None
        print(file=worker.stdin, flush=True)
        answers.append([int(word) for word in worker.stdout.readline().split()])
    for worker in workers:
        worker.communicate(timeout=30)
    assert [allowed for allowed, _, _ in answers] == [1] * 5 + [0] * 7
    times = [now_ms for _, now_ms, _ in answers]
    assert times == sorted(times)
    ends_ms = {now_ms + wait_ms for allowed, now_ms, wait_ms in answers if not allowed}
    assert ends_ms == {times[4] + 15 * MINUTE}


@pytest.mark.parametrize("back_ms", [1, 10 * MINUTE])
def test_a_success_after_the_clock_stepped_back(
    door: Callable[..., Door], clock: Clock, back_ms: int
) -> None:
    """Rule 7: a success takes its reservation back, and lifts its lock, by whatever clock."""
    login = door(("account", "2/15m", {"lockout": "15m"}), ("client", "9/15m"), clock=clock)
    login.fail()
    attempt = login.attempt()
    clock.advance(-back_ms)
    attempt.succeed()
    assert (login.used("account"), login.used("client")) == (0, 1)
    assert not login.verdict().locked
