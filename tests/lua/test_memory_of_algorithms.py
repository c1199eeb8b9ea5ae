"""What a key weighs after 1, 100 and 10,000 hits, and that it goes when idle costs nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from authguard._core import calls
from authguard.limits import (
    Cooldown,
    Distinct,
    FixedWindow,
    LeakyBucket,
    SlidingLog,
    SlidingWindowCounter,
    TokenBucket,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Gate

S, HOUR = 1_000, 3_600_000
TIMES = (1, 100, 10_000)
#: The server's own part of a key with a short value: name, entry and expiry.
OVERHEAD = 200
#: What its allocator may add, by the piece of memory that it happens to find.
ROUNDING = 32

CONSTANT = {
    "FixedWindow": (FixedWindow("1000000/1h"), 17),
    "FixedWindow of a zone": (FixedWindow("1000000/1mo", zone="Europe/Oslo"), 17),
    "SlidingWindowCounter": (SlidingWindowCounter("1000000/1h"), 28),
    "TokenBucket": (TokenBucket("1000/1s", burst=100_000), 29),
    "LeakyBucket": (LeakyBucket("1000/1s", queue=100_000), 29),
    "Cooldown": (Cooldown("1s", "2s"), 18),
    "Distinct of one value": (Distinct("account", "1000/1h"), 22),
}
LOGS = {
    "SlidingLog": (SlidingLog("100/1h"), 10, 100),
    "SlidingLog that counts refused ones": (SlidingLog("100/1h", count_refused=True), 10, 100),
    "a long SlidingLog": (SlidingLog("100000/1h"), 10, 10_000),
    "Distinct of many values": (Distinct("account", "100/1h"), 22, 100),
}
#: Each with how many places are taken, so that something is in it.
ENDING = {
    "SlidingLog": SlidingLog("10/1h"),
    "FixedWindow": FixedWindow("10/1h"),
    "FixedWindow of a zone": FixedWindow("10/1d", zone="Australia/Lord_Howe"),
    "SlidingWindowCounter": SlidingWindowCounter("10/1h"),
    "TokenBucket": TokenBucket("10/1h", burst=10),
    "LeakyBucket": LeakyBucket("7/1h", queue=10),
    "Distinct": Distinct("account", "10/1h"),
}


def hit_often(
    gate: Gate, client: valkey.Valkey, clock: Clock, times: int, *, values: bool, step_ms: int
) -> None:
    """Hit so many times, a thousand in one message; each with a value of its own, or all alike."""
    call = calls.acquire(
        gate.bind(account="vera"), cost=1, attempt_id=b"nonce", now_ms=clock.now_ms
    )
    _, *others, members = call.args
    client.script_load(call.script.text)
    waiting = client.pipeline(transaction=False)
    for number in range(times):
        clock.advance(step_ms)
        member = number.to_bytes(6) if values else members
        waiting.evalsha(call.script.sha1, len(call.keys), *call.keys, clock.now_ms, *others, member)
        if len(waiting) == 1_000:
            waiting.execute()
    waiting.execute()


def weigh(client: valkey.Valkey) -> tuple[int, int]:
    """Give the bytes of the one key: all that the server holds for it, and its value's."""
    (key,) = client.scan_iter()
    assert client.pttl(key) > 0
    return int(client.memory_usage(key, samples=0)), client.strlen(key)


@pytest.mark.parametrize("name", CONSTANT)
def test_what_is_of_one_size_whatever_it_counts(
    gate: Callable[..., Gate], client: valkey.Valkey, clock: Clock, name: str
) -> None:
    """A counter, a bucket, a wait: the same bytes at 1, 100 and 10,000 hits."""
    algorithm, length = CONSTANT[name]
    one = gate(("client", algorithm))
    weights = []
    for times in TIMES:
        client.flushall()
        hit_often(one, client, clock, times, values=False, step_ms=1)
        weights.append(weigh(client))
    assert {value for _, value in weights} == {length}
    memory = [bytes_ for bytes_, _ in weights]
    assert max(memory) - min(memory) <= ROUNDING
    assert max(memory) <= length + OVERHEAD


@pytest.mark.parametrize("name", LOGS)
def test_what_keeps_entries_keeps_no_more_than_its_limit(
    gate: Callable[..., Gate], client: valkey.Valkey, clock: Clock, name: str
) -> None:
    """A log is 10 bytes an entry, a count of values 22 each, and never more than the limit's."""
    algorithm, entry, most = LOGS[name]
    one = gate(("client", algorithm))
    for times in TIMES:
        client.flushall()
        hit_often(one, client, clock, times, values=True, step_ms=0)
        memory, value = weigh(client)
        assert value == entry * min(times, most)
        assert memory <= 1.3 * value + OVERHEAD


@pytest.mark.parametrize("name", LOGS)
def test_what_has_left_the_window_is_thrown_away(
    gate: Callable[..., Gate], client: valkey.Valkey, clock: Clock, name: str
) -> None:
    """The first hit after a quiet window leaves one entry, not those of before."""
    algorithm, entry, _ = LOGS[name]
    one = gate(("client", algorithm))
    hit_often(one, client, clock, 100, values=True, step_ms=0)
    clock.advance(HOUR)
    hit_often(one, client, clock, 1, values=True, step_ms=0)
    assert weigh(client)[1] == entry


def holds_ms(gate: Gate, cost: int) -> tuple[int, int]:
    """Take places; give the clock, and for how long they are held."""
    decision = gate.attempt(account="vera", cost=cost).decision
    assert decision.allowed
    return decision.now_ms, decision.reset_after_ms


@pytest.mark.parametrize("name", ENDING)
@pytest.mark.parametrize("cost", [1, 7])
def test_a_key_lives_as_long_as_it_says(
    gate: Callable[..., Gate], client: valkey.Valkey, name: str, cost: int
) -> None:
    """R11: by the store's clock a key expires when all is free, as the verdict tells: no later."""
    now_ms, reset_ms = holds_ms(gate(("client", ENDING[name]), own_clock=True), cost)
    (key,) = client.scan_iter()
    assert client.pexpiretime(key) == now_ms + reset_ms
    assert 0 < client.pttl(key) <= reset_ms


def test_idle_costs_nothing(gate: Callable[..., Gate], client: valkey.Valkey) -> None:
    """R11: when its time is over the store holds nothing, without anybody asking."""
    algorithms = (
        SlidingLog("2/1s"),
        TokenBucket("2/1s", burst=2),
        LeakyBucket("2/1s", queue=9),
        Distinct("account", "2/1s"),
    )
    one = gate(*(("client", algorithm) for algorithm in algorithms), own_clock=True)
    _, reset_ms = holds_ms(one, 1)
    assert reset_ms == S
    time.sleep((reset_ms + 5) / 1000)
    assert client.exists(*one.bind(account="vera").keys) == 0


def test_a_wait_is_remembered_ten_times_its_last(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """R11: what a cooldown must remember is for how long it climbs, and its key lives so long."""
    now_ms, reset_ms = holds_ms(gate(("client", Cooldown("1s", "60s")), own_clock=True), 1)
    (key,) = client.scan_iter()
    assert (reset_ms, client.pexpiretime(key)) == (S, now_ms + 600 * S)


@pytest.mark.parametrize("name", CONSTANT)
def test_a_refused_hit_lengthens_no_life(
    gate: Callable[..., Gate], client: valkey.Valkey, name: str
) -> None:
    """R3: a hammering client keeps no key alive: neither value nor expiry is touched."""
    algorithm, _ = CONSTANT[name]
    if isinstance(algorithm, Cooldown | Distinct):
        one = gate(("client", type(algorithm)(*_narrow(algorithm))), own_clock=True)
        who = [f"a{number}" for number in range(4)]
    else:
        one = gate(("client", algorithm), own_clock=True)
        who = ["vera"] * 4
    most = one.policy.limits[0].algorithm.largest_cost() or 1
    assert one.attempt(account=who[0], cost=most).allowed
    (key,) = client.scan_iter()
    before = client.get(key), client.pexpiretime(key)
    for name_ in who[1:]:
        assert not one.attempt(account=name_, cost=most).allowed
    assert (client.get(key), client.pexpiretime(key)) == before


def _narrow(algorithm: Cooldown | Distinct) -> tuple[str, ...]:
    return ("1h",) if isinstance(algorithm, Cooldown) else ("account", "1/1h")
