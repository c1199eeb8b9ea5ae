"""All algorithms by one interface: exact in any race, at any edge, by any clock, in one call."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied, limits
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard import Attempt, Decision, Guard
    from authguard.limiter import Limiter
    from authguard.limits import Algorithm
    from tests.conftest import Clock

S, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
#: How many each admits at once. The windows are so long that a test by the real clock sees no
#: boundary of one, and the buckets so slow that nothing drains in it.
AT_ONCE = {
    'SlidingLog("10/1h")': 10,
    'SlidingLog("10/1h", count_refused=True)': 10,
    'FixedWindow("10/3650d")': 10,
    'SlidingWindowCounter("10/3650d")': 10,
    'TokenBucket("1/365d", burst=10)': 10,
    'LeakyBucket("1/365d", queue=9)': 10,
    'Cooldown("1h")': 1,
    'Distinct("account", "10/1h")': 10,
}
#: Ten or one in an hour, as each counts.
HOURLY = {
    'SlidingLog("10/1h")': 10,
    'FixedWindow("10/1h")': 10,
    'SlidingWindowCounter("10/1h")': 10,
    'TokenBucket("10/1h", burst=10)': 10,
    'LeakyBucket("10/1h", queue=9)': 10,
    'Cooldown("1h")': 1,
    'Distinct("account", "10/1h")': 10,
}
#: Odd numbers, so that hardly anything falls on a whole second.
ODD = [
    'SlidingLog("7/13s")',
    'FixedWindow("7/13s")',
    'FixedWindow("7/1d", zone="America/Havana")',
    'SlidingWindowCounter("7/13s")',
    'TokenBucket("7/13s", burst=5)',
    'TokenBucket("3/1s", burst=9)',
    'LeakyBucket("7/13s", queue=5)',
    'Cooldown("1s", "2s", "7s")',
    'Distinct("account", "3/13s")',
]

#: A process that hits with several threads at the instant each line of its input names.
WORKER = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from authguard import Guard, limits
url, secret, name, threads = *sys.argv[1:4], int(sys.argv[4])
barrier = threading.Barrier(threads)
def hit(limiter, start_s, number):
    value = f"{name} {number}" if limiter._value_part else None
    barrier.wait()
    time.sleep(max(0.0, start_s - time.monotonic()))
    return limiter.hit("key", value=value).allowed
forgetful = Guard(url, secret=secret, deadline_ms=10_000, remember_refusals_ms=0)
with forgetful as guard, ThreadPoolExecutor(threads) as pool:
    print("ready", flush=True)
    for line in sys.stdin:
        start_s, text = line.split(" ", 1)
        limiter = guard.limiter(eval(text, vars(limits)), name=text.strip())
        hits = [pool.submit(hit, limiter, float(start_s), each) for each in range(threads)]
        print(sum(each.result() for each in hits), flush=True)
"""


def made(text: str) -> Algorithm:
    """Make an algorithm from its text."""
    algorithm: Algorithm = eval(text, vars(limits))  # noqa: S307, RUF100 (texts of this file)
    return algorithm


def hit(limiter: Limiter, key: str = "key", cost: int = 1, *, number: int = 0) -> Decision:
    """Hit; what a ``Distinct`` tells apart is another value for each number."""
    return limiter.hit(key, cost, value=f"value {number}" if limiter._value_part else None)


def peek(limiter: Limiter, key: str = "key", cost: int = 1, *, number: int = 0) -> Decision:
    """Peek, likewise."""
    return limiter.peek(key, cost, value=f"value {number}" if limiter._value_part else None)


@pytest.fixture
def limiter(guard_factory: Callable[..., Guard], clock: Clock) -> Callable[[str], Limiter]:
    """Make limiters by the test's clock, which starts at half past an hour of UTC."""
    clock.now_ms += HOUR - clock.now_ms % HOUR + HOUR // 2
    guard = guard_factory(clock=clock)
    return lambda text: guard.limiter(made(text))


@pytest.fixture(scope="module")
def workers(valkey_server: Any) -> Iterator[Callable[[str], list[int]]]:
    """Start two processes of ten threads each; give how many hits each of them got admitted."""
    root = Path(__file__).parents[2]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, valkey_server.url, SECRET, name, "10"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
        )
        for name in "ab"
    ]
    assert [process.stdout and process.stdout.readline() for process in started] == ["ready\n"] * 2

    def burst(text: str) -> list[int]:
        start_s = time.monotonic() + 0.05
        for process in started:
            print(start_s, text, file=process.stdin, flush=True)
        return [int(process.stdout.readline()) for process in started if process.stdout]

    yield burst
    for process in started:
        process.communicate(timeout=30)
        assert process.returncode == 0


@pytest.mark.parametrize("text", AT_ONCE)
def test_threads_at_twice_the_limit(guard_factory: Callable[..., Guard], text: str) -> None:
    """B002: of twenty hits at once exactly the limit is admitted, in each of ten rounds."""
    limiter = guard_factory().limiter(made(text))
    barrier = Barrier(20)

    def one(key: str, number: int) -> bool:
        barrier.wait()
        return hit(limiter, key, number=number).allowed

    with ThreadPoolExecutor(20) as crowd:
        for attempt in range(10):
            admitted = list(crowd.map(one, [f"key {attempt}"] * 20, range(20)))
            assert admitted.count(True) == AT_ONCE[text]
            assert peek(limiter, f"key {attempt}", number=99).remaining == 0


@pytest.mark.parametrize("text", AT_ONCE)
def test_processes_at_twice_the_limit(
    workers: Callable[[str], list[int]], client: valkey.Valkey, text: str
) -> None:
    """B002: of twenty hits of two processes at once exactly the limit is admitted, each round."""
    for _ in range(5):
        assert sum(workers(text)) == AT_ONCE[text]
        client.flushdb()


@pytest.mark.parametrize("text", HOURLY)
def test_hit_peek_and_reset(
    limiter: Callable[[str], Limiter], client: valkey.Valkey, text: str
) -> None:
    """B009, B010: after k hits limit - k are left, a peek says so and writes nothing."""
    one, most = limiter(text), HOURLY[text]
    for count in range(most):
        before = {key: client.get(key) for key in client.scan_iter()}
        asked = peek(one, number=count)
        assert (asked.allowed, asked.remaining, asked.retry_after_ms) == (True, most - count, 0)
        assert {key: client.get(key) for key in client.scan_iter()} == before
        decision = hit(one, number=count)
        assert (decision.allowed, decision.remaining) == (True, most - count - 1)
        assert decision.reset_after_ms > 0
    before = {key: client.get(key) for key in client.scan_iter()}
    for ask in (peek, hit):
        refused = ask(one, number=most)
        assert (refused.allowed, refused.remaining) == (False, 0)
        assert refused.retry_after_ms > 0
    assert {key: client.get(key) for key in client.scan_iter()} == before
    assert hit(one, "another").allowed
    assert one.reset("key").entries == most
    assert one.reset("key").entries == 0
    assert hit(one, number=most).allowed


@pytest.mark.parametrize(
    ("text", "admitted"), [*zip(HOURLY, [10, 20, 10, 10, 10, 1, 10], strict=True)]
)
def test_two_bursts_that_meet_at_the_hour(
    limiter: Callable[[str], Limiter], clock: Clock, text: str, admitted: int
) -> None:
    """B011: only a fixed window admits two bursts where windows meet; it says so."""
    one = limiter(text)
    clock.advance(HOUR // 2 - 1)
    count = sum(hit(one, number=number).allowed for number in range(15))
    clock.advance(1)
    count += sum(hit(one, number=number + 50).allowed for number in range(15))
    assert count == admitted


@pytest.mark.parametrize(
    ("text", "left_then_now"),
    [
        ('SlidingLog("10/1h")', (0, 10)),
        ('FixedWindow("10/1h")', (10, 10)),
        ('SlidingWindowCounter("10/1h")', (4, 5)),  # half of the hour before is still covered
        ('TokenBucket("10/1h", burst=10)', (9, 10)),
        ('LeakyBucket("10/1h", queue=9)', (9, 10)),
        ('Cooldown("1h")', (0, 1)),
        ('Distinct("account", "10/1h")', (0, 10)),
    ],
)
def test_an_hour_after_a_burst_and_a_millisecond_sooner(
    limiter: Callable[[str], Limiter], clock: Clock, text: str, left_then_now: tuple[int, int]
) -> None:
    """R1, B013: at exactly t + window what was made at t has gone, and not 1 ms sooner."""
    one = limiter(text)
    for number in range(10):
        hit(one, number=number)
    left = []
    for ms in (HOUR - 1, 1):
        clock.advance(ms)
        left.append(peek(one, number=99).remaining)
    assert tuple(left) == left_then_now


@pytest.mark.parametrize("text", ODD)
def test_who_waits_as_told_is_admitted(
    limiter: Callable[[str], Limiter], clock: Clock, text: str
) -> None:
    """R4, B069, B070: in a hundred phases the wait of that very cost is exact to the ms."""
    draw = random.Random(text)
    one = limiter(text)
    most = made(text).largest_cost() or 1
    waited = number = 0
    while waited < 100:
        number += 1
        clock.advance(draw.choice([0, 1, 50, draw.randint(0, 2_000)]))
        cost = draw.choice([1, 1, 2, draw.randint(1, most)]) if most > 1 else 1
        if hit(one, cost=cost, number=number).allowed:
            continue
        waited += 1
        told = peek(one, cost=cost, number=number)
        assert told.retry_after == -(-told.retry_after_ms // S) >= 1
        clock.advance(told.retry_after_ms - 1)
        assert peek(one, cost=cost, number=number).retry_after_ms == 1
        clock.advance(1)
        assert hit(one, cost=cost, number=number).allowed


@pytest.mark.parametrize("text", ODD)
def test_numbers_stay_in_their_ranges(
    limiter: Callable[[str], Limiter], clock: Clock, text: str
) -> None:
    """B062: in any phase remaining is 0 to the limit, and waits are of the period at most."""
    draw = random.Random(text)
    one, algorithm = limiter(text), made(text)
    period_ms = max([algorithm.window_ms, *getattr(algorithm, "waits_ms", ())])
    longest_ms = 2 * period_ms + HOUR  # a counter's two windows; a day of 25 hours
    for number in range(300):
        clock.advance(draw.choice([0, 0, 0, 1, 300, draw.randint(0, period_ms)]))
        for ask in (peek, hit):
            decision = ask(one, number=draw.randint(0, number))
            assert 0 <= decision.remaining <= algorithm.limit
            assert decision.allowed is (decision.retry_after_ms == 0)
            assert 0 <= decision.retry_after_ms <= longest_ms
            assert 0 <= decision.reset_after_ms <= longest_ms
            assert decision.retry_after_ms <= decision.reset_after_ms


@pytest.mark.parametrize("text", HOURLY)
@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_goes_back_and_forth(
    limiter: Callable[[str], Limiter], clock: Clock, text: str, seed: int
) -> None:
    """Rule 7: never more than the limit in a minute that went forward, then one window more."""
    draw = random.Random(seed)
    one, most = limiter(text), HOURLY[text]
    admitted = sum(hit(one, number=number).allowed for number in range(15))
    for number in range(60):
        back_ms = draw.choice([1, 7, S, MINUTE, HOUR - 1, HOUR, draw.randint(0, 30 * DAY)])
        clock.advance(draw.choice([-back_ms, draw.randint(0, S), S]))
        admitted += hit(one, number=99 + number).allowed
    assert admitted == most
    refused = hit(one, cost=1, number=200)
    longest_ms = 2 * HOUR if "Window" in text else HOUR
    assert 0 < refused.retry_after_ms <= longest_ms
    clock.advance(refused.retry_after_ms - 1)
    assert peek(one, number=200).retry_after_ms == 1
    clock.advance(1)
    assert hit(one, number=200).allowed


def evalsha_calls(client: valkey.Valkey) -> int:
    """Count the EVALSHAs the server has run."""
    count: int = client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
    return count


@pytest.mark.parametrize("text", HOURLY)
def test_one_question_is_one_call(
    limiter: Callable[[str], Limiter], client: valkey.Valkey, text: str
) -> None:
    """Each algorithm decides in one EVALSHA, whether it admits or refuses."""
    one = limiter(text)
    hit(one)
    peek(one)
    one.reset("key")
    before = evalsha_calls(client)
    for number in range(12):
        hit(one, number=number)
    peek(one)
    one.reset("key")
    assert evalsha_calls(client) - before == 14


@pytest.mark.parametrize("text", HOURLY)
def test_under_two_secrets(guard_factory: Callable[..., Guard], clock: Clock, text: str) -> None:
    """A change of secrets gives no key a fresh budget: what stood before is counted."""
    old, new = SECRET, SECRET[::-1]
    before, during, after = (
        guard_factory(clock=clock, secret=secrets).limiter(made(text))
        for secrets in (old, [new, old], new)
    )
    most = HOURLY[text]
    assert hit(before).allowed
    admitted = [hit(during, number=number).allowed for number in range(1, most + 3)]
    assert admitted.count(True) == most - 1
    assert peek(after, number=99).remaining == 1  # the one that is counted under the old alone


def test_a_cost_that_makes_no_difference(limiter: Callable[[str], Limiter]) -> None:
    """A wait and a count of values take one place whatever an attempt costs."""
    assert hit(limiter('Cooldown("1h")'), cost=50).allowed
    values = limiter('Distinct("account", "3/1h")')
    assert [hit(values, cost=9, number=number).allowed for number in range(4)] == [True] * 3 + [
        False
    ]


#: One limit of each algorithm that has room, and what would leave it none.
ROOM = {
    "sliding-log": ({"sliding_log": "20/1h"}, {"sliding_log": "3/1h"}),
    "fixed-window": ({"fixed_window": "20/1h"}, {"fixed_window": "3/1h"}),
    "counter": ({"sliding_window_counter": "20/1h"}, {"sliding_window_counter": "3/1h"}),
    "tokens": ({"token_bucket": "20/1h", "burst": 20}, {"token_bucket": "1/1h", "burst": 3}),
    "queue": ({"leaky_bucket": "20/1h", "queue": 19}, {"leaky_bucket": "1/1h", "queue": 2}),
    "cooldown": ({"cooldown": ["1s"]}, {"cooldown": ["1h"]}),
    "values": ({"distinct": "account", "limit": "20/1h"}, {"distinct": "account", "limit": "3/1h"}),
}


def all_of_them(narrow: str = "") -> dict[str, Any]:
    """Write an action with one limit of each algorithm; one of them can be narrow."""
    tables = [
        {"name": name, "by": ["client"], **each[name == narrow]} for name, each in ROOM.items()
    ]
    return {"act": {"limits": tables}}


def test_all_algorithms_together_are_one_call(
    guard_factory: Callable[..., Guard], client: valkey.Valkey, clock: Clock
) -> None:
    """R7, B060: a decision over all seven is one EVALSHA, its settle another."""
    guard = guard_factory(clock=clock, policies=all_of_them())
    who = {"account": "vera", "client": "203.0.113.9"}
    guard.attempt("act", **who).succeed()
    clock.advance(2_000)
    before = evalsha_calls(client)
    attempt = guard.attempt("act", **who)
    assert evalsha_calls(client) - before == 1
    assert [verdict.name for verdict in attempt.decision.verdicts] == list(ROOM)
    attempt.succeed()
    assert evalsha_calls(client) - before == 2
    assert client.dbsize() >= 1


@pytest.mark.parametrize("narrow", ROOM)
def test_all_of_them_or_none(
    guard_factory: Callable[..., Guard], client: valkey.Valkey, clock: Clock, narrow: str
) -> None:
    """R3, R7: whichever algorithm refuses, and it alone, no other has counted the attempt."""
    guard = guard_factory(clock=clock, policies=all_of_them(narrow))
    for number in range(1 if narrow == "cooldown" else 3):
        guard.attempt("act", account=f"a{number}", client="203.0.113.9")
        clock.advance(1_000)
    before = {key: client.get(key) for key in client.scan_iter()}
    with pytest.raises(Denied) as caught:
        guard.attempt("act", account="another", client="203.0.113.9")
    assert caught.value.decision.refused_by == (narrow,)
    assert {key: client.get(key) for key in client.scan_iter()} == before
    clock.advance(caught.value.decision.retry_after_ms)
    assert guard.attempt("act", account="another", client="203.0.113.9").decision.allowed


@pytest.mark.parametrize("seed", range(3))
def test_a_window_gets_back_only_what_is_its_own(
    guard_factory: Callable[..., Guard], clock: Clock, seed: int
) -> None:
    """Successes and releases at any time: a window admits its limit of what was kept, exactly."""
    draw = random.Random(seed)
    table = {"name": "it", "by": ["client"], "fixed_window": "7/2s"}
    guard = guard_factory(clock=clock, policies={"act": {"limits": [table]}})
    kept: list[Attempt] = []
    for _ in range(200):
        clock.advance(draw.choice([0, 0, 1, 50, draw.randint(0, 2_500)]))
        cost = draw.choice([1, 1, 2, 7])
        window = clock.now_ms // 2_000
        held = sum(each._places.cost for each in kept if each.decision.now_ms // 2_000 == window)
        try:
            kept.append(guard.attempt("act", account="vera", client="203.0.113.9", cost=cost))
        except Denied:
            assert held + cost > 7
        else:
            assert held + cost <= 7
        if kept and draw.random() < 0.4:
            given = kept.pop(draw.randrange(max(0, len(kept) - 5), len(kept)))
            draw.choice([given.succeed, given.release])()


def test_fifty_attempts_at_all_of_them_at_once(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """B002: in any race all limits count the same: as many as the narrowest had places."""
    tables = [{"name": name, "by": ["client"], **each[0]} for name, each in ROOM.items()]
    policies = {"act": {"limits": [it for it in tables if it["name"] != "cooldown"]}}
    guard = guard_factory(clock=clock, policies=policies)

    def one(number: int) -> bool:
        try:
            guard.attempt("act", account=f"a{number}", client="203.0.113.9")
        except Denied:
            return False
        return True

    with ThreadPoolExecutor(16) as crowd:
        assert list(crowd.map(one, range(50))).count(True) == 20
    assert [usage.used for usage in guard.usage("act", client="203.0.113.9")[:6]] == [20] * 6
