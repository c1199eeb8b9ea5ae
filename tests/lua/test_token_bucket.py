"""A steady rate with bursts: exactly `burst + rate * time`, however often it is asked."""

from __future__ import annotations

import random
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING

import pytest

from authguard._core import calls
from authguard.limits import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Gate

S, HOUR = 1_000, 3_600_000
FIVE = ("client", TokenBucket("5/1s", burst=10))


def test_its_burst_and_then_its_rate(gate: Callable[..., Gate], clock: Clock) -> None:
    """R1, R2: a full bucket gives its burst at once; then one token comes each 200 ms, sharp."""
    bucket = gate(FIVE)
    assert [bucket.attempt().allowed for _ in range(11)] == [True] * 10 + [False]
    for _ in range(12):
        assert bucket.attempt().wait_ms == 200
        clock.advance(199)
        assert bucket.attempt().wait_ms == 1
        clock.advance(1)
        assert bucket.attempt().allowed


def test_a_rate_that_divides_no_millisecond(gate: Callable[..., Gate], clock: Clock) -> None:
    """Three in a second come after 334, 667 and 1,000 ms, and so in every second that follows."""
    bucket = gate(("client", TokenBucket("3/1s", burst=2)))
    start_ms = clock.now_ms
    bucket.attempt(cost=2)
    for number in range(1, 31):
        came_ms = start_ms + -(-1000 * number // 3)
        clock.advance(came_ms - 1 - clock.now_ms)
        assert not bucket.attempt().allowed
        clock.advance(1)
        assert bucket.attempt().allowed


def test_idle_saves_up_to_the_burst_and_no_more(gate: Callable[..., Gate], clock: Clock) -> None:
    """After an hour without anybody the burst is there, as it was at first."""
    bucket = gate(FIVE)
    for _ in range(3):
        assert sum(bucket.attempt().allowed for _ in range(15)) == 10
        clock.advance(HOUR)


@pytest.mark.parametrize("cost", [1, 2, 5, 10])
def test_the_wait_is_for_exactly_that_cost(
    gate: Callable[..., Gate], clock: Clock, cost: int
) -> None:
    """R4: an empty bucket tells how long until this cost is there; then it is, and not before."""
    bucket = gate(FIVE)
    bucket.attempt(cost=10)
    clock.advance(70)
    refused = bucket.attempt(cost=cost)
    assert refused.wait_ms == 200 * cost - 70
    clock.advance(refused.wait_ms - 1)
    assert not bucket.attempt(cost=cost).allowed
    clock.advance(1)
    assert bucket.attempt(cost=cost).allowed


def test_remaining_and_reset(gate: Callable[..., Gate], clock: Clock) -> None:
    """What is left are whole tokens; the reset is when the bucket is full."""
    bucket = gate(FIVE)
    full = bucket.peek()
    assert (full.remaining, full.reset_after_ms) == (10, 0)
    decision = bucket.attempt(cost=4).decision
    assert (decision.remaining, decision.reset_after_ms) == (6, 800)
    clock.advance(199)
    assert (bucket.peek().remaining, bucket.peek().reset_after_ms) == (6, 601)
    clock.advance(1)
    assert (bucket.peek().remaining, bucket.peek().reset_after_ms) == (7, 600)
    assert (bucket.inspect()[0].used, bucket.inspect()[0].frees_after_ms) == (3, 200)


def asked(
    bucket: Gate, client: valkey.Valkey, clock: Clock, steps_ms: Iterable[int]
) -> Iterable[tuple[int, bool]]:
    """Ask once after each step, a thousand in one message; give the clock and the verdict."""
    call = calls.acquire(bucket.bind(), cost=1, attempt_id=b"nonce", now_ms=clock.now_ms)
    _, *others = call.args
    client.script_load(call.script.text)
    waiting = client.pipeline(transaction=False)
    for step_ms in steps_ms:
        clock.advance(step_ms)
        waiting.evalsha(call.script.sha1, len(call.keys), *call.keys, clock.now_ms, *others)
        if len(waiting) == 1_000:
            yield from ((reply[0], reply[1] == 1) for reply in waiting.execute())
    yield from ((reply[0], reply[1] == 1) for reply in waiting.execute())


@pytest.mark.parametrize(
    ("numbers", "steps"),
    [
        ((3, 1_000, 5), (7, 7, 10_000)),
        ((7, 60_000, 2), (0, 8_000, 10_000)),
        pytest.param((3, 1_000, 100), (7, 7, 1_000_000), marks=pytest.mark.slow),
        pytest.param((997, 3_600_000, 10), (0, 3_000, 200_000), marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(900)
def test_it_never_drifts(
    gate: Callable[..., Gate],
    client: valkey.Valkey,
    clock: Clock,
    numbers: tuple[int, int, int],
    steps: tuple[int, int, int],
) -> None:
    """Asked a million times in uneven steps it has given burst + rate * time, after each ask."""
    draw, (rate, period_ms, burst) = random.Random(1), numbers
    shortest_ms, longest_ms, times = steps
    bucket = gate(("client", TokenBucket(f"{rate}/{period_ms // S}s", burst=burst)))
    start_ms = clock.now_ms
    steps_ms = [0] * burst + [draw.randint(shortest_ms, longest_ms) for _ in range(times)]
    verdicts = asked(bucket, client, clock, steps_ms)
    count = 0
    for number, (now_ms, allowed) in enumerate(verdicts, 1):
        count += allowed
        assert count == min(number, burst + rate * (now_ms - start_ms) // period_ms)
    assert number == len(steps_ms)
    assert count > burst + 100


@pytest.mark.parametrize("seed", range(6))
def test_a_settle_admits_no_more_than_the_bound(
    gate: Callable[..., Gate], clock: Clock, seed: int
) -> None:
    """Of all that was kept, no stretch of time holds more than burst + rate * its length."""
    draw = random.Random(seed)
    rate, burst = draw.choice([(3, 5), (1, 2), (7, 10)])
    bucket = gate(("client", TokenBucket(f"{rate}/1s", burst=burst)))
    kept = []
    for _ in range(120):
        clock.advance(draw.choice([0, 1, 50, draw.randrange(1_500)]))
        tried = bucket.attempt(cost=draw.choice([1, 1, 2, burst]))
        if tried.allowed:
            kept.append(tried)
        if kept and draw.random() < 0.4:
            kept.pop(draw.randrange(len(kept))).settle(succeeded=draw.random() < 0.5)
    for at, last in enumerate(kept):
        held = 0
        for tried in reversed(kept[: at + 1]):
            held += tried.reservation.cost
            length_ms = last.decision.now_ms - tried.decision.now_ms
            assert held * S <= burst * S + rate * length_ms


def test_a_settle_gives_back_what_has_not_been_refilled(
    gate: Callable[..., Gate], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Tokens come back at once whole, later less what came by itself, and then not at all."""
    bucket = gate(FIVE)
    assert bucket.attempt(cost=10).succeed().entries == 10
    assert store() == {}
    tried, other = bucket.attempt(cost=4), bucket.attempt(cost=6)
    clock.advance(400)
    assert tried.release().entries == 2
    assert bucket.peek().remaining == 4
    clock.advance(800)
    assert bucket.attempt(cost=8).allowed
    assert other.release().entries == 0
    assert bucket.peek().remaining == 0


@pytest.mark.parametrize("back_ms", [1, HOUR, 10_000 * HOUR])
def test_under_a_clock_that_steps_back(
    gate: Callable[..., Gate], clock: Clock, back_ms: int
) -> None:
    """Rule 7: nothing is refilled for the step, and an empty one waits as long as ever."""
    bucket = gate(FIVE)
    bucket.attempt(cost=10)
    clock.advance(-back_ms)
    assert bucket.attempt(cost=10).wait_ms == 2 * S
    clock.advance(2 * S - 1)
    assert bucket.attempt(cost=10).wait_ms == 1
    clock.advance(1)
    assert bucket.attempt(cost=10).allowed


def test_stepping_back_again_and_again_refills_nothing(
    gate: Callable[..., Gate], clock: Clock
) -> None:
    """Rule 7: whatever the clock does, time that went forward refills, and nothing else."""
    draw = random.Random(7)
    bucket = gate(FIVE)
    admitted = sum(bucket.attempt().allowed for _ in range(11))
    forward_ms = 0
    for _ in range(300):
        step_ms = draw.choice([-HOUR, -200, -1, 0, 1, 30, 199])
        forward_ms += max(0, step_ms)
        clock.advance(step_ms)
        admitted += bucket.attempt().allowed
        assert admitted <= 10 + 5 * forward_ms // S
    assert admitted > 10


def test_other_numbers_take_the_level_over(gate: Callable[..., Gate], clock: Clock) -> None:
    """A bucket whose rate is changed holds as many tokens as before, and never more."""
    draw = random.Random(3)
    rates = [("5/1s", 10), ("3/1s", 10), ("7/1m", 12), ("1/3s", 10)]
    gate(FIVE).attempt(cost=9)
    missing = 9
    for _ in range(40):
        rate, burst = draw.choice(rates)
        changed = gate(("client", TokenBucket(rate, burst=burst)))
        assert changed.inspect()[0].used == missing
        assert changed.attempt().allowed is (missing < burst)
        missing = min(burst, missing + 1) if missing < burst else missing
        assert changed.clear().entries == missing
        missing = draw.randint(1, 10)
        assert changed.attempt(cost=missing).allowed


@pytest.mark.parametrize("after_ms", [0, 1, 30, 133, 199])
def test_a_part_of_a_token_is_taken_over_too(
    gate: Callable[..., Gate], clock: Clock, after_ms: int
) -> None:
    """A change of rate gives no part of a token away: it is rounded up to a millisecond's share."""
    bucket = gate(("client", TokenBucket("3/1s", burst=10)))
    bucket.attempt(cost=9)
    clock.advance(after_ms)
    assert bucket.attempt().allowed
    missing = 10 - Fraction(3 * after_ms, 1000)
    changed = gate(FIVE).peek()
    assert changed.reset_after_ms == ceil(missing * 200)
    assert changed.remaining == floor(10 - missing)


def test_a_key_that_is_gone_when_the_bucket_is_full(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """The value is of 29 bytes; its key ends when the bucket would be full again."""
    bucket = gate(("client", TokenBucket("1000/1h", burst=2_000)), own_clock=True)
    for cost in (1, 1_990):
        decision = bucket.attempt(cost=cost).decision
        (key,) = client.scan_iter()
        assert client.strlen(key) == 29
        assert client.pexpiretime(key) == decision.now_ms + decision.reset_after_ms


def test_a_key_robbed_of_its_expiry_gets_one_again(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """No key lives for ever: a refused try mends what somebody persisted."""
    bucket = gate(FIVE)
    bucket.attempt(cost=10)
    (key,) = client.scan_iter()
    assert client.persist(key)
    assert not bucket.attempt().allowed
    assert client.pttl(key) > 0


def test_clear(gate: Callable[..., Gate], client: valkey.Valkey) -> None:
    """A clear fills the bucket, says how many were missing, and is forgotten as soon as it may."""
    bucket = gate(("client", TokenBucket("5/1h", burst=10)), own_clock=True)
    assert bucket.clear().entries == client.dbsize() == 0
    bucket.attempt(cost=8)
    now_ms = bucket.peek().now_ms
    assert (bucket.clear().entries, bucket.clear().entries) == (8, 0)
    assert bucket.inspect()[0].used == 0
    (key,) = client.scan_iter()
    assert 0 <= client.pexpiretime(key) - now_ms - 2 * HOUR < HOUR
