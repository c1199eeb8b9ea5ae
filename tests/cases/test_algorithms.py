"""Cases of the kinds boundary, race, wait, clock and header that an algorithm answers by itself."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from authguard.limits import (
    Cooldown,
    Distinct,
    FixedWindow,
    LeakyBucket,
    SlidingLog,
    SlidingWindowCounter,
    TokenBucket,
)
from authguard.stores.valkey import ValkeyStore
from tests.cases.conftest import add_door
from tests.conftest import PATIENT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Decision, Guard
    from authguard._core.calls import ScriptCall
    from authguard.limiter import Limiter
    from authguard.limits import Algorithm
    from tests.conftest import Clock
    from tests.flask.conftest import Site

T = TypeVar("T")
S, MINUTE, HOUR = 1_000, 60_000, 3_600_000

#: So many in a minute, as each algorithm says it.
IN_A_MINUTE: dict[str, Callable[[int], Algorithm]] = {
    "sliding log": lambda count: SlidingLog(f"{count}/60s"),
    "fixed window": lambda count: FixedWindow(f"{count}/60s"),
    "sliding window counter": lambda count: SlidingWindowCounter(f"{count}/60s"),
    "token bucket": lambda count: TokenBucket(f"{count}/60s", burst=count),
    "leaky bucket": lambda count: LeakyBucket(f"{count}/60s", queue=count - 1),
}
#: The same as a policy's table.
TABLES: dict[str, dict[str, Any]] = {
    "sliding log": {"sliding_log": "5/60s"},
    "fixed window": {"fixed_window": "5/60s"},
    "sliding window counter": {"sliding_window_counter": "5/60s"},
    "token bucket": {"token_bucket": "5/60s", "burst": 5},
    "leaky bucket": {"leaky_bucket": "5/60s", "queue": 4},
    "distinct": {"distinct": "client", "limit": "5/60s"},
}
WAITS = [
    Cooldown("2s", "3s"),
    Distinct("account", "2/60s"),
    *(make(2) for make in IN_A_MINUTE.values()),
]

every = pytest.mark.parametrize("algorithm", IN_A_MINUTE)


@pytest.fixture
def clock(clock: Clock) -> Clock:
    """Start at a full minute."""
    clock.now_ms += HOUR - clock.now_ms % HOUR
    return clock


@pytest.fixture
def limiter(guard_factory: Callable[..., Guard], clock: Clock) -> Callable[..., Limiter]:
    """Make limiters by the test's clock."""
    guard = guard_factory(clock=clock)
    return lambda algorithm, count=10, name=None: guard.limiter(
        IN_A_MINUTE[algorithm](count) if isinstance(algorithm, str) else algorithm, name=name
    )


@every
def test_hits_of_one_tick_are_entries_of_their_own(
    limiter: Callable[..., Limiter], algorithm: str
) -> None:
    """B007: of 51 hits in one millisecond 50 count and the last is refused; 10 of cost 5 are 50."""
    one = limiter(algorithm, 50)
    assert [one.hit("a").allowed for _ in range(51)] == [True] * 50 + [False]
    assert one.reset("a").entries == 50
    assert [one.hit("b", 5).allowed for _ in range(11)] == [True] * 10 + [False]
    assert one.reset("b").entries == 50


@pytest.mark.parametrize("algorithm", TABLES)
def test_every_number_alone_is_right(
    guard_factory: Callable[..., Guard], clock: Clock, algorithm: str
) -> None:
    """B009, B010: after k attempts count is k, remaining 5 - k, refused from 5: k = 0 to 5."""
    table = {"name": "it", "by": ["account"], **TABLES[algorithm]}
    guard = guard_factory(clock=clock, policies={"act": {"limits": [table]}})
    for count in range(6):
        who = {"account": "vera", "client": f"192.0.2.{count}"}
        (verdict,) = guard.peek("act", **who).verdicts
        assert (verdict.remaining, verdict.refuses) == (5 - count, count >= 5)
        assert next(usage.used for usage in guard.usage("act", account="vera")) == count
        if count < 5:
            assert guard.attempt("act", **who).decision.remaining == 4 - count


@pytest.mark.parametrize(
    ("algorithm", "retry_after"),
    [
        ("sliding log", 59),  # 59.0 + 60 - 60.5, rounded up
        ("fixed window", 0),  # by design: two bursts meet
        ("sliding window counter", 12),  # four fifths of the minute before: at 72.0
        ("token bucket", 11),  # a token each 12 s, the first at 71.0
        ("leaky bucket", 11),
    ],
)
def test_a_burst_that_straddles_a_minute(
    limiter: Callable[..., Limiter], clock: Clock, algorithm: str, retry_after: int
) -> None:
    """B011: five at 59.0 to 59.8 s; at 60.5 s all but a fixed window refuse, each with its wait."""
    one = limiter(algorithm, 5)
    clock.advance(59_000)
    for _ in range(5):
        assert one.hit("a").allowed
        clock.advance(200)
    clock.advance(500)
    decision = one.hit("a")
    assert (decision.allowed, decision.retry_after) == (retry_after == 0, retry_after)
    clock.advance(retry_after * S)
    assert one.hit("a").allowed


@every
def test_a_cost_above_the_limit(limiter: Callable[..., Limiter], algorithm: str) -> None:
    """B012: 5 in; 100 is an error that names cost and limit and counts nothing; 5 in, 1 refused."""
    one = limiter(algorithm)
    assert one.hit("a", 5).remaining == 5
    for ask in (one.hit, one.peek):
        with pytest.raises(ValueError, match="cost: 100 is more than the limit 10"):
            ask("a", 100)
    assert one.peek("a").remaining == 5
    assert one.hit("a", 5).remaining == 0
    assert not one.hit("a").allowed


@pytest.mark.parametrize(
    ("algorithm", "free_after_ms"),
    [
        ("sliding log", 60_000),
        ("fixed window", 60_000),
        ("sliding window counter", 60_000 + 12_000),
        ("token bucket", 12_000),
        ("leaky bucket", 12_000),
    ],
)
def test_what_has_left_is_not_counted_first(
    limiter: Callable[..., Limiter], clock: Clock, algorithm: str, free_after_ms: int
) -> None:
    """B013: five at 0 s; 1 ms before a place is free refused with 1, at that instant admitted."""
    one = limiter(algorithm, 5)
    for _ in range(5):
        one.hit("a")
    clock.advance(free_after_ms - 1)
    refused = one.hit("a")
    assert (refused.allowed, refused.retry_after, refused.retry_after_ms) == (False, 1, 1)
    clock.advance(1)
    assert one.hit("a").allowed


@every
@pytest.mark.parametrize("costs", [(8, 1, 1), (1, 1, 8), (3, 3, 3, 1), (10,), (1,) * 10])
def test_any_order_of_costs(
    limiter: Callable[..., Limiter], algorithm: str, costs: tuple[int, ...]
) -> None:
    """B014: ten places are ten whatever the order; then a further one is refused."""
    one, left = limiter(algorithm), 10
    for cost in costs:
        left -= cost
        decision = one.hit("a", cost)
        assert (decision.allowed, decision.remaining) == (True, left)
    assert not one.hit("a").allowed


@every
def test_a_limit_that_was_lowered(
    limiter: Callable[..., Limiter], clock: Clock, algorithm: str
) -> None:
    """B066, B072: 8 used of 10, then 5: 0 left, and a wait until enough has gone, to the ms."""
    before = limiter(algorithm, 10, "api")
    for _ in range(8):
        before.hit("a")
        clock.advance(500)
    lowered = limiter(algorithm, 5, "api")
    refused = lowered.hit("a")
    assert (refused.allowed, refused.remaining) == (False, 0)
    clock.advance(refused.retry_after_ms - 1)
    assert lowered.peek("a").retry_after_ms == 1
    clock.advance(1)
    assert lowered.hit("a").allowed


@pytest.mark.parametrize(
    ("algorithm", "retry_after"),
    [
        ("sliding log", 40),
        ("fixed window", 40),
        ("sliding window counter", 70),  # 2 * a half is 1: at 90 s
        ("token bucket", 10),  # one token each 30 s
        ("leaky bucket", 10),
    ],
)
def test_the_wait_is_for_the_first_place(
    limiter: Callable[..., Limiter], clock: Clock, algorithm: str, retry_after: int
) -> None:
    """B069: limit 2 in a minute, hits at 0 and 10 s, asked at 20 s: until one place is free."""
    one = limiter(algorithm, 2)
    one.hit("a")
    clock.advance(10_000)
    one.hit("a")
    clock.advance(10_000)
    assert one.hit("a").retry_after == retry_after
    clock.advance(retry_after * S)
    assert one.hit("a").allowed


def hit(one: Limiter, number: int, key: str = "a") -> Decision:
    """Hit with another value each time, where values are told apart."""
    return one.hit(key, value=f"v{number}" if one._value_part else None)


@pytest.mark.parametrize("algorithm", WAITS, ids=repr)
def test_whole_seconds_are_enough_and_one_less_is_not(
    limiter: Callable[..., Limiter], clock: Clock, algorithm: Algorithm
) -> None:
    """B070: in a hundred phases who waits Retry-After is admitted, a second less is refused."""
    draw = random.Random(70)
    one, phases = limiter(algorithm), 0
    for number in range(1_000):
        clock.advance(draw.randrange(1_500))
        refused = hit(one, number)
        if refused.allowed:
            continue
        phases += 1
        assert refused.retry_after >= 1
        clock.advance((refused.retry_after - 1) * S)
        if refused.retry_after > 1:
            assert not hit(one, number).allowed
        clock.advance(S)
        assert hit(one, number).allowed
        if phases == 100:
            return
    pytest.fail("too few phases")


def test_no_refusal_says_0_seconds(build: Callable[..., Site], clock: Clock) -> None:
    """B074: cooldown of 2 s, asked each 50 ms: header = body, 2 then 1; at 0 it is admitted."""
    table = {"name": "wait", "by": ["account"], "cooldown": ["2s"]}
    site = build(clock=clock, blueprint=False, AUTHGUARD_POLICY={"message": {"limits": [table]}})
    add_door(site, "/door", "message")
    body = {"username": "vera", "password": "wrong"}

    def knock() -> Any:
        return site.post("/door", json=body)

    for _ in range(3):
        assert knock().status_code == 401
        for polled in range(1, 40):
            clock.advance(50)
            answer = knock()
            seconds = -(-(2_000 - 50 * polled) // S)
            assert (answer.status_code, answer.headers["Retry-After"]) == (429, str(seconds))
            assert answer.json["retry_after"] == seconds >= 1
            assert " 0 s" not in answer.text
        clock.advance(50)


@pytest.mark.parametrize("algorithm", WAITS, ids=repr)
def test_names_with_anything_in_them_wait_alike(
    limiter: Callable[..., Limiter], clock: Clock, algorithm: Algorithm
) -> None:
    """B075: counting and waiting look under one name: the same numbers whatever it is made of."""
    names = ["", "shop", "a:b", "x{y}", "}{", "*", "rl:v1:"]
    steps = [random.Random(75).randrange(900) for _ in range(40)]
    begin_ms, numbers = clock.now_ms, []
    for name in names:
        for key in (name, "a"):
            clock.now_ms = begin_ms
            one = limiter(algorithm, name=f"{name}{algorithm.algorithm}" if name else None)
            told = []
            for number, step_ms in enumerate(steps):
                clock.advance(step_ms)
                decision = hit(one, number, f"{key} of {name}")
                told.append((decision.allowed, decision.remaining, decision.retry_after_ms))
            numbers.append(told)
    assert all(told == numbers[0] for told in numbers)
    assert any(wait_ms > 0 for _, _, wait_ms in numbers[0])


class Listening(ValkeyStore):
    """A store that notes the clock of every call."""

    def __init__(self, url: str) -> None:
        super().__init__(url, deadline_ms=PATIENT_MS)
        self.clocks: list[object] = []

    def run(self, call: ScriptCall[T]) -> T:
        """Note and run."""
        self.clocks.append(call.args[0])
        return super().run(call)


@pytest.mark.parametrize(
    "algorithm",
    # By the real clock no window may end in the test.
    [FixedWindow("2/3650d"), *(it for it in WAITS if not isinstance(it, FixedWindow))],
    ids=repr,
)
def test_workers_with_wrong_clocks(
    guard_factory: Callable[..., Guard],
    valkey_url: str,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: Algorithm,
) -> None:
    """B127: workers 10 s early and late in turn admit what one would: by the store's clock."""
    listening = Listening(valkey_url)
    one = guard_factory(store=listening).limiter(algorithm)
    real_s, real_ns, times, admitted = time.time, time.time_ns, [], 0
    for number in range(10):
        skew_s = (10, -10)[number % 2]
        monkeypatch.setattr(time, "time", lambda skew_s=skew_s: real_s() + skew_s)
        monkeypatch.setattr(time, "time_ns", lambda skew_s=skew_s: real_ns() + skew_s * 10**9)
        decision = hit(one, number)
        admitted += decision.allowed
        times.append(decision.now_ms)
    assert admitted == (1 if isinstance(algorithm, Cooldown) else 2)
    assert times == sorted(times)
    assert times[-1] - times[0] < 9_000
    assert set(listening.clocks) == {""}
    listening.close()


@dataclass
class Reckoned:
    """What a limit of 5 in a second admits, reckoned from the bare list of what it admitted."""

    algorithm: str
    admitted: list[int] = field(default_factory=list)

    def admits(self, now_ms: int) -> bool:
        """Say whether one more is admitted."""
        window = now_ms // S
        if self.algorithm == "sliding log":
            return sum(now_ms < made + S for made in self.admitted) < 5
        if self.algorithm == "fixed window":
            return sum(made // S == window for made in self.admitted) < 5
        if self.algorithm == "sliding window counter":
            current = sum(made // S == window for made in self.admitted)
            previous = sum(made // S == window - 1 for made in self.admitted)
            return current * S + previous * (S - now_ms % S) + S <= 5 * S
        level, since = 0, 0  # a bucket's, in thousandths of a place
        for made in self.admitted:
            level, since = max(0, level - 5 * (made - since)) + S, made
        return max(0, level - 5 * (now_ms - since)) + S <= 5 * S


@every
def test_five_hundred_calls_around_the_ends_of_windows(
    limiter: Callable[..., Limiter], clock: Clock, algorithm: str
) -> None:
    """B131: placed within 2 ms of window ends, each is judged by one reading of one clock."""
    draw = random.Random(131)
    one = limiter(
        {
            "sliding log": SlidingLog("5/1s"),
            "fixed window": FixedWindow("5/1s"),
            "sliding window counter": SlidingWindowCounter("5/1s"),
            "token bucket": TokenBucket("5/1s", burst=5),
            "leaky bucket": LeakyBucket("5/1s", queue=4),
        }[algorithm]
    )
    reckoned, begin_ms = Reckoned(algorithm), clock.now_ms
    instants = sorted(begin_ms + S * draw.randint(1, 60) + draw.randint(-2, 2) for _ in range(500))
    for now_ms in instants:
        clock.now_ms = now_ms
        decision = one.hit("a")
        assert decision.now_ms == now_ms
        assert decision.allowed is reckoned.admits(now_ms)
        if decision.allowed:
            reckoned.admitted.append(now_ms)
    assert 100 < len(reckoned.admitted) < 500
