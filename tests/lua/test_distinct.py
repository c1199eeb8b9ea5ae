"""How many different accounts a client tries: a known one is always admitted, a new one may not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from authguard import SlidingLog
from authguard.limits import Distinct

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from tests.conftest import Clock
    from tests.lua.conftest import Gate

MINUTE, HOUR = 60_000, 3_600_000
SPRAY = ("client", Distinct("account", "20/1h"))
THREE = ("client", Distinct("account", "3/1h", forgive=False))


def test_a_spray_ends_at_the_21st_account(guard_factory: Callable[..., Guard]) -> None:
    """A48: by the default profile a client's 21st account is refused; its 20 others go on."""
    guard = guard_factory()
    for number in range(20):
        guard.attempt("login", account=f"a{number}", client="203.0.113.9")
    refused = guard.peek("login", account="a20", client="203.0.113.9")
    assert refused.refused_by == ("spray",)
    assert guard.peek("login", account="a7", client="203.0.113.9").allowed
    assert guard.peek("login", account="a20", client="203.0.113.10").allowed


def test_a_known_value_is_admitted_when_it_is_full(gate: Callable[..., Gate], clock: Clock) -> None:
    """A48: twenty accounts fill it; each of them is admitted all the same, again and again."""
    login = gate(SPRAY)
    for number in range(20):
        assert login.attempt(account=f"a{number}").allowed
    for number in range(20):
        clock.advance(1)
        assert login.attempt(account=f"a{number}").allowed
        assert not login.attempt(account="another").allowed


def test_a_value_counts_from_its_latest_attempt(gate: Callable[..., Gate], clock: Clock) -> None:
    """A value leaves one window after its latest attempt, to the millisecond; who waits gets in."""
    login = gate(THREE)
    for account in "abc":
        login.attempt(account=account)
        clock.advance(MINUTE)
    login.attempt(account="a")  # now b is the oldest
    refused = login.attempt(account="d")
    assert refused.wait_ms == HOUR - 2 * MINUTE
    clock.advance(refused.wait_ms - 1)
    assert login.attempt(account="d").wait_ms == 1
    clock.advance(1)
    admitted = login.attempt(account="d")
    assert admitted.allowed
    assert not login.attempt(account="b").allowed
    assert login.attempt(account="a").allowed


def test_what_is_left_is_told(gate: Callable[..., Gate], clock: Clock) -> None:
    """Remaining is how many new values it would admit; reset is when it holds none."""
    login = gate(THREE)
    told = []
    for account in "abbc":
        (verdict,) = login.attempt(account=account, cost=3).decision.verdicts
        told.append((verdict.remaining, verdict.reset_after_ms))
        clock.advance(MINUTE)
    assert told == [(2, HOUR), (1, HOUR), (1, HOUR), (0, HOUR)]
    clock.advance(HOUR - MINUTE)
    (verdict,) = login.peek(account="d").verdicts
    assert (verdict.remaining, verdict.reset_after_ms) == (3, 0)


@pytest.mark.parametrize("forgive", [True, False])
def test_a_success_takes_its_own_back(
    gate: Callable[..., Gate],
    clock: Clock,
    store: Callable[[], dict[bytes, bytes]],
    forgive: bool,
) -> None:
    """An account that was opened counts no more, where that forgives; else from before it."""
    login = gate(("client", Distinct("account", "1/1h", forgive=forgive)))
    login.attempt(account="a")
    clock.advance(MINUTE)
    opened = login.attempt(account="a")
    assert opened.succeed().entries == int(forgive)
    assert login.peek(account="b").allowed is forgive
    if not forgive:
        assert login.attempt(account="b").wait_ms == HOUR - MINUTE
    before = store()
    assert opened.succeed().entries == 0
    assert store() == before


def test_who_forgives_unless_told() -> None:
    """A window of an hour or less forgives; a longer one only if it is told to."""
    assert Distinct("account", "20/1h").forgives(("client",))
    assert not Distinct("account", "20/61m").forgives(("client",))
    assert Distinct("account", "20/61m", forgive=True).forgives(("client",))


def test_a_release_takes_back_its_own_alone(gate: Callable[..., Gate], clock: Clock) -> None:
    """A release never forgives: the value counts from the attempt before, or not at all."""
    login = gate(("client", Distinct("account", "1/1h")))
    assert login.attempt(account="a").release().entries == 1
    assert login.attempt(account="b").allowed
    clock.advance(MINUTE)
    assert login.attempt(account="b").release().entries == 0
    assert login.attempt(account="a").wait_ms == HOUR - MINUTE


def test_a_predecessor_that_is_given_back_is_forgotten(
    gate: Callable[..., Gate], clock: Clock
) -> None:
    """Two pending attempts on a value, both given back in either order, leave nothing."""
    login = gate(THREE)
    for order in (0, 1), (1, 0):
        pair = []
        for _ in range(2):
            pair.append(login.attempt(account="a"))
            clock.advance(MINUTE)
        freed = [pair[at].release().entries for at in order]
        if order == (0, 1):
            assert freed == [0, 1]
            (usage,) = login.inspect(account="a")
            assert usage.used == 0


def test_two_attempts_in_one_millisecond(gate: Callable[..., Gate], clock: Clock) -> None:
    """Each of two attempts of one moment takes itself back, and the value stands while one does."""
    login = gate(THREE)
    first = login.attempt(account="a")
    second = login.attempt(account="a")
    assert second.release().entries == 0
    assert login.inspect(account="a")[0].used == 1
    assert first.release().entries == 1
    assert login.inspect(account="a")[0].used == 0


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_many_given_back_none_takes_a_standing_one_along(
    gate: Callable[..., Gate], clock: Clock, order: tuple[int, ...]
) -> None:
    """A failure stands whatever is given back after it, in any order, and nothing else does."""
    login = gate(THREE)
    login.attempt(account="a")
    later = []
    for _ in range(3):
        clock.advance(5)
        later.append(login.attempt(account="a"))
    for at in order:
        assert later[at].release().entries == 0
        assert login.inspect(account="a")[0].used == 1
    other = [login.attempt(account="b") for _ in range(4)]
    for tried in other:
        tried.release()
    assert login.inspect(account="b")[0].used == 1


def test_a_moment_whose_stamp_is_none(gate: Callable[..., Gate], clock: Clock) -> None:
    """A time that is a multiple of 2^40 ms is no missing one: it counts, a millisecond later."""
    login = gate(THREE)
    clock.now_ms = 2**41
    login.attempt(account="a")
    clock.advance(MINUTE)
    assert login.attempt(account="a").release().entries == 0
    assert login.inspect(account="a")[0].newest_ms == 2**41 + 1


def test_the_other_values_stay(gate: Callable[..., Gate], clock: Clock) -> None:
    """A success takes nothing of another account of its client out."""
    login = gate(("client", Distinct("account", "2/1h")))
    login.attempt(account="a")
    login.attempt(account="b").succeed()
    (usage,) = login.inspect(account="c")
    assert (usage.used, usage.newest_ms) == (1, clock.now_ms)


@pytest.mark.parametrize("back_ms", [1, 10 * MINUTE, 10_000 * MINUTE])
def test_under_a_clock_that_steps_back(
    gate: Callable[..., Gate], clock: Clock, back_ms: int
) -> None:
    """Rule 7: a full one refuses new values for at most one window more, and admits no more."""
    login = gate(THREE)
    pending = [login.attempt(account=account) for account in "abc"]
    clock.advance(-back_ms)
    assert login.attempt(account="d").wait_ms == HOUR
    assert login.attempt(account="a").allowed
    assert pending[1].release().entries in (0, 1)  # another try may have moved its time
    clock.advance(HOUR)
    assert login.attempt(account="d").allowed


def test_one_value_more_than_the_limit_never_gets_in(gate: Callable[..., Gate]) -> None:
    """Twenty accounts at once at a limit of three: three are admitted, every time."""
    login = gate(THREE, own_clock=True)
    barrier = Barrier(20)

    def one(number: int) -> bool:
        barrier.wait()
        return login.attempt(account=f"a{number}").allowed

    with ThreadPoolExecutor(20) as crowd:
        for _ in range(10):
            assert list(crowd.map(one, range(20))).count(True) == 3
            login.clear(account="a")


def test_the_key_is_bounded_and_ends(gate: Callable[..., Gate], client: valkey.Valkey) -> None:
    """At most `limit` entries of 22 bytes are kept; the key ends with its newest one."""
    login = gate(SPRAY, own_clock=True)
    for number in range(100):
        tried = login.attempt(account=f"a{number % 30}")
    (key,) = client.scan_iter()
    assert client.strlen(key) == 20 * 22
    assert not tried.allowed or client.pexpiretime(key) == tried.decision.now_ms + HOUR
    assert client.pttl(key) > 0


def test_no_value_is_named(
    gate: Callable[..., Gate], store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Rule 11: a value stands as six bytes of its pseudonym, under each secret another."""
    login = gate(THREE, secrets=2)
    login.attempt(account="vera")
    one, other = store().values()
    assert b"vera" not in one + other
    assert one[10:16] != other[10:16]


def test_a_key_robbed_of_its_expiry_gets_one_again(
    gate: Callable[..., Gate], client: valkey.Valkey
) -> None:
    """A refused try gives a robbed key its expiry again, and moves no time."""
    login = gate(THREE, ("account", SlidingLog("1/1h")))
    login.attempt(account="a")
    keys = sorted(client.scan_iter())
    before = {key: client.get(key) for key in keys}
    for key in keys:
        client.persist(key)
    assert not login.attempt(account="a").allowed
    assert {key: client.get(key) for key in keys} == before
    assert all(client.pttl(key) > 0 for key in keys)
