"""Refusals known already: repeated without the store, never too long, ended by what unlocks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from authguard import (
    ConfigurationError,
    Decision,
    Denied,
    Guard,
    StoreUnavailable,
    limits,
)
from authguard.errors import Overloaded, TooDear
from tests.conftest import SECRET
from tests.stores.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard.testing import EmbeddedValkey
    from tests.stores.wire import Step, Talk

    Guards = Callable[..., Guard]

ADDRESS: Final = "203.0.113.9"
VERA: Final[dict[str, Any]] = {"account": "vera", "client": ADDRESS}
OMAR: Final[dict[str, Any]] = {"account": "omar", "client": "192.0.2.7"}

#: Windows longer than any test: nothing leaves them by itself.
LOGIN: Final[dict[str, Any]] = {
    "login": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "4/1h"},
            {"name": "pair", "by": ["account", "client"], "sliding_log": "2/1h"},
            {"name": "client", "by": ["client"], "sliding_log": "50/1h"},
        ]
    }
}

#: All that can count by itself; each admits one attempt or two, and none for a second or so.
SHORT: Final = [
    'SlidingLog("1/1s")',
    'SlidingLog("1/4s", lockout="1s")',
    'FixedWindow("1/1s")',
    'SlidingWindowCounter("2/1s")',
    'TokenBucket("2/1s", burst=1)',
    'TokenBucket("7/3s", burst=1)',
    'LeakyBucket("3/1s", queue=0)',
    'Cooldown("1s")',
    'Distinct("account", "1/1s")',
]


@pytest.fixture
def guard(guard_factory: Guards) -> Guard:
    """Give a guard with the policy above, its connection in use and its scripts loaded."""
    made = guard_factory(policies=LOGIN)
    made.peek("login", **VERA)
    return made


@pytest.fixture
def asked(client: valkey.Valkey) -> Callable[[], int]:
    """Tell how many scripts the server has run since this was last asked for."""

    def since_last() -> int:
        stats: Any = client.info("commandstats")
        client.config_resetstat()
        scripts = [
            stats[f"cmdstat_{verb}"] for verb in ("evalsha", "eval") if f"cmdstat_{verb}" in stats
        ]
        return sum(each["calls"] - each["failed_calls"] for each in scripts)  # failed: NOSCRIPT

    since_last()
    return since_last


def told(guard: Guard, action: str = "login", **asking: Any) -> Decision:
    """Attempt; give the decision, admitted or not."""
    try:
        return guard.attempt(action, **asking).decision
    except Denied as error:
        return error.decision


def refused(guard: Guard, action: str = "login", **asking: Any) -> Decision:
    """Attempt until it is refused; give that decision."""
    for _ in range(60):
        decision = told(guard, action, **asking)
        if not decision.allowed:
            return decision
    raise AssertionError


def one(*limits: dict[str, Any]) -> dict[str, Any]:
    """Make policies of one action, ``login``."""
    return {"login": {"limits": [*limits]}}


def log(name: str, by: list[str], rate: str, **more: Any) -> dict[str, Any]:
    """Make a limit that is a sliding log."""
    return {"name": name, "by": by, "sliding_log": rate, **more}


# What a repeat is told.


def test_a_repeat_is_answered_without_a_command(
    guard: Guard, guard_factory: Guards, asked: Callable[[], int]
) -> None:
    """The first refusal costs one command, its repeats none; all name the same limits."""
    first = refused(guard, **VERA)
    assert (first.refused_by, asked()) == (("pair",), 3)
    repeats = [told(guard, **VERA) for _ in range(50)]
    assert asked() == 0
    assert {repeat.refused_by for repeat in repeats} == {("pair",)}
    assert {len(repeat.verdicts) for repeat in repeats} == {len(first.verdicts)}
    assert told(guard_factory(policies=LOGIN), **VERA).refused_by == ("pair",)
    assert asked() == 1  # another guard knows nothing of it


def test_a_repeats_wait_goes_down_with_time(guard: Guard, guard_factory: Guards) -> None:
    """It is never shorter than the truth, and never longer than what was told before."""
    asking = guard_factory(policies=LOGIN)
    waits_ms = [refused(guard, **VERA).retry_after_ms]
    begun_s = time.monotonic()
    for _ in range(12):
        time.sleep(0.02)
        decision = told(guard, **VERA)
        waits_ms.append(decision.retry_after_ms)
        truth = asking.peek("login", **VERA)
        assert decision.retry_after_ms >= truth.retry_after_ms
        assert decision.reset_after_ms >= truth.reset_after_ms
        assert decision.now_ms <= truth.now_ms
    assert waits_ms == sorted(waits_ms, reverse=True)
    assert waits_ms[0] - waits_ms[-1] >= 12 * 20
    assert waits_ms[0] - waits_ms[-1] <= 1000 * (time.monotonic() - begun_s)


def test_each_account_of_a_full_client_is_asked_once(
    guard_factory: Guards, asked: Callable[[], int]
) -> None:
    """Who is refused by the client they share is remembered each by itself, in any order."""
    policies = one(log("account", ["account"], "4/1h"), log("client", ["client"], "3/1h"))
    guard = guard_factory(policies=policies)
    refused(guard, **VERA)
    asked()
    for _ in range(5):
        for number in range(40):
            decision = told(guard, account=f"name {number}", client=ADDRESS)
            assert decision.refused_by == ("client",)
    assert asked() == 40
    assert told(guard, account="name 1", client="192.0.2.9").allowed


def test_the_longest_wait_is_told_whatever_is_known(
    guard_factory: Guards, asked: Callable[[], int]
) -> None:
    """A client known to be full for a minute hears of the hour that an account is locked for."""
    policies = one(
        log("account", ["account"], "2/1m", lockout=["1h"]), log("client", ["client"], "3/1m")
    )
    guard = guard_factory(policies=policies)
    refused(guard, account="omar", client="192.0.2.9")
    for account in ("vera", "mia", "vera"):
        refused(guard, account=account, client=ADDRESS)
    asked()
    decision = told(guard, account="omar", client=ADDRESS)
    assert (decision.refused_by, decision.retry_after) == (("account", "client"), 3_600)
    assert asked() == 1


def test_a_blocks_repeats_cost_nothing(guard: Guard, asked: Callable[[], int]) -> None:
    """What an operator has blocked is refused without a command, with or without an end."""
    guard.block(account="vera")
    guard.block(client="192.0.2.7", for_ms=60_000)
    asked()
    for who, most_ms in ((VERA, 900_000), (OMAR, 60_000)):
        decisions = [told(guard, **who) for _ in range(20)]
        assert {decision.refused_by for decision in decisions} == {("block",)}
        assert all(most_ms - 5_000 < each.retry_after_ms <= most_ms for each in decisions)
    assert asked() == 2


def test_a_lock_in_the_log_is_known_too(guard_factory: Guards, asked: Callable[[], int]) -> None:
    """A locked account's repeats cost nothing and are told the lock; no lock is set anew."""
    policies = one(log("account", ["account"], "2/1h", lockout=["15m"]))
    guard = guard_factory(policies=policies)
    refused(guard, account="vera")
    asked()
    decision = told(guard, account="vera")
    (verdict,) = decision.verdicts
    assert (verdict.locked, verdict.lock_set, asked()) == (True, False, 0)


# What ends it.

ENDED_BY: Final[dict[str, Callable[[Guard], object]]] = {
    "clear": lambda guard: guard.clear("login", **VERA),
    "pardon": lambda guard: guard.pardon("login", account="vera"),
    "recover": lambda guard: guard.recover("login", **VERA),
    "override": lambda guard: guard.override(
        "login", "pair", account="vera", to="9/1h", for_ms=60_000
    ),
    "exempt": lambda guard: guard.override("login", "pair", account="vera", to=None, for_ms=60_000),
}


@pytest.mark.parametrize("whose", ["the same", "another"])
@pytest.mark.parametrize("how", ENDED_BY)
def test_what_unlocks_is_heeded_at_once(
    guard: Guard, guard_factory: Guards, asked: Callable[[], int], how: str, whose: str
) -> None:
    """Whichever guard of the process unlocks, the next try of every guard asks and is admitted."""
    another = guard_factory(policies=LOGIN)
    for each in (guard, another):
        assert refused(each, **VERA).refused_by == ("pair",)
        assert not told(each, **VERA).allowed
    time.sleep(0.002)  # a pardon is of what was made in milliseconds before its own
    ENDED_BY[how](guard if whose == "the same" else another)
    asked()
    assert told(guard, **VERA).allowed
    assert told(another, **VERA).allowed
    assert asked() == 2


@pytest.mark.parametrize("whose", ["the same", "another"])
def test_an_unblocked_client_is_let_in_at_once(
    guard: Guard, guard_factory: Guards, whose: str
) -> None:
    """A lifted block is no longer remembered by any guard of the process."""
    operator = guard if whose == "the same" else guard_factory(policies=LOGIN)
    operator.block(client=ADDRESS)
    assert told(guard, **VERA).refused_by == ("block",)
    operator.unblock(client=ADDRESS)
    assert told(guard, **VERA).allowed


@pytest.mark.parametrize("whose", ["the same", "another"])
def test_a_lifted_override_is_heeded_at_once(
    guard: Guard, guard_factory: Guards, whose: str
) -> None:
    """What fewer places refused, the limit's own admit as soon as they count again."""
    operator = guard if whose == "the same" else guard_factory(policies=LOGIN)
    operator.override("login", "pair", account="vera", to="1/1h", for_ms=3_600_000)
    assert told(guard, **VERA).allowed
    assert refused(guard, **VERA).refused_by == ("pair",)
    operator.lift_override("login", "pair", account="vera")
    assert told(guard, **VERA).allowed


@pytest.mark.parametrize("whose", ["the same", "another"])
def test_a_load_that_is_said_is_heeded_at_once(
    guard: Guard, guard_factory: Guards, asked: Callable[[], int], whose: str
) -> None:
    """After it nothing is known: the next try asks the store."""
    operator = guard if whose == "the same" else guard_factory(policies=LOGIN)
    refused(guard, **VERA)
    operator.load(1)
    asked()
    assert not told(guard, **VERA).allowed
    assert asked() == 1


@pytest.mark.parametrize("whose", ["the same", "another"])
def test_a_limiter_that_is_reset_admits_at_once(guard_factory: Guards, whose: str) -> None:
    """A limiter's reset ends what any limiter of the process remembers."""
    limiter, another = (guard_factory().limiter(limits.SlidingLog("1/1h")) for _ in range(2))
    assert [limiter.hit("key").allowed for _ in range(3)] == [True, False, False]
    assert not another.hit("key").allowed
    (limiter if whose == "the same" else another).reset("key")
    assert limiter.hit("key").allowed
    assert not another.hit("key").allowed


def test_a_block_that_is_set_again_ends_when_it_says(guard: Guard) -> None:
    """A shorter block in a longer one's place is not outlived by what was told of the longer."""
    guard.block(client=ADDRESS, for_ms=3_600_000)
    assert told(guard, **VERA).refused_by == ("block",)
    guard.block(client=ADDRESS, for_ms=50)
    time.sleep(0.06)
    assert told(guard, **VERA).allowed


def test_a_block_is_named_at_once(guard: Guard) -> None:
    """Whoever is refused by a limit, and then blocked, is told of the block."""
    refused(guard, **VERA)
    guard.block(client=ADDRESS)
    assert told(guard, **VERA).refused_by == ("pair", "block")


@pytest.mark.parametrize("end", ["succeed", "release"])
def test_a_place_given_back_is_taken_at_once(guard_factory: Guards, end: str) -> None:
    """A pair of one place: the first tries, the second is refused, the third comes after it."""
    guard = guard_factory(policies=one(log("pair", ["account", "client"], "1/1h")))
    first = guard.attempt("login", **VERA)
    assert [told(guard, **VERA).allowed for _ in range(3)] == [False] * 3
    getattr(first, end)()
    assert told(guard, **VERA).allowed


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (1, 2, 1), (2, 1, 2)])
def test_a_place_given_back_is_taken_at_once_whatever_was_asked(
    guard_factory: Guards, order: tuple[int, ...]
) -> None:
    """All refusals at a log are forgotten with a place in it, of whatever cost they were."""
    guard = guard_factory(policies=one(log("account", ["account"], "2/1h")))
    first = guard.attempt("login", account="vera", cost=2)
    for cost in order:
        assert not told(guard, account="vera", cost=cost).allowed
    first.succeed()
    for cost in sorted(set(order)):
        attempt = guard.attempt("login", account="vera", cost=cost)
        attempt.succeed()


def test_a_place_given_back_ends_what_was_told_a_while_ago(guard_factory: Guards) -> None:
    """Refusals that have come since make none stay that a place given back has ended."""
    policies = one(log("account", ["account"], "1/1h"))
    guard = guard_factory(policies=policies, remember_refusals_ms=600)
    first = guard.attempt("login", account="vera")
    refused(guard, account="omar")
    time.sleep(0.3)
    refused(guard, account="vera")
    time.sleep(0.31)
    refused(guard, account="mia")
    first.succeed()
    assert told(guard, account="vera").allowed


def test_what_was_told_before_a_place_was_given_back_is_over(guard_factory: Guards) -> None:
    """A refusal that another attempt is told later does not bring an older one back."""
    guard = guard_factory(policies=one(log("account", ["account"], "2/1h")))
    first = guard.attempt("login", account="vera", cost=2)
    assert not told(guard, account="vera").allowed
    first.release()
    assert told(guard, account="vera").allowed
    assert not told(guard, account="vera", cost=2).allowed
    assert told(guard, account="vera").allowed


def test_a_limit_that_admits_again_is_not_named(guard_factory: Guards) -> None:
    """Of two that refuse, the first that would admit ends what is told of both."""
    policies = one(log("burst", ["account"], "1/1s"), log("account", ["account"], "1/1h"))
    guard = guard_factory(policies=policies)
    assert told(guard, account="vera").allowed
    time.sleep(0.6)
    assert told(guard, account="vera").refused_by == ("burst", "account")
    time.sleep(0.5)
    assert told(guard, account="vera").refused_by == ("account",)


def test_a_client_that_gives_back_lets_other_accounts_in(guard_factory: Guards) -> None:
    """What one account's success frees in its client's log, the next account gets at once."""
    policies = one(log("account", ["account"], "4/1h"), log("client", ["client"], "1/1h"))
    guard = guard_factory(policies=policies)
    first = guard.attempt("login", **VERA)
    for account in ("omar", "mia", "omar"):
        assert told(guard, account=account, client=ADDRESS).refused_by == ("client",)
    first.succeed()
    for account in ("mia", "omar"):
        guard.attempt("login", account=account, client=ADDRESS).succeed()


def test_a_success_that_is_broken_off_is_heeded(guard_factory: Guards) -> None:
    """Once the store has given a place back it is free, whatever became of the caller."""
    guard = guard_factory(policies=one(log("pair", ["account", "client"], "1/1h")))
    first = guard.attempt("login", **VERA)
    assert not told(guard, **VERA).allowed
    steps = first._succeed()
    guard.store.run(next(steps))
    steps.close()  # as a signal's exception or a cancelled task does
    assert told(guard, **VERA).allowed


def test_a_place_given_back_in_a_bucket_that_held_nothing_is_taken(guard_factory: Guards) -> None:
    """A load of 0 leaves a bucket no window; what is given back in it counts all the same."""
    bucket = {"token_bucket": "1/1h", "burst": 1, "elastic": True}
    guard = guard_factory(policies=one({"name": "bucket", "by": ["account"], **bucket}))
    attempt = guard.attempt("login", account="vera")
    guard_factory().load(0, for_ms=100)
    assert told(guard, account="vera").refused_by == ("bucket",)
    time.sleep(0.12)
    attempt.release()
    assert told(guard, account="vera").allowed


def test_limiters_that_are_made_anew_know_what_an_equal_one_was_told(
    guard_factory: Guards, asked: Callable[[], int]
) -> None:
    """An app that makes one for each call asks no more often than one that keeps it."""
    guard = guard_factory()
    hits = [guard.limiter(limits.SlidingLog("1/1h")).hit("key").allowed for _ in range(50)]
    assert (hits, asked()) == ([True] + [False] * 49, 2)


# Never longer than the limit itself.


def test_no_limit_refuses_longer_than_by_itself(guard_factory: Guards) -> None:
    """What is remembered ends no later than the limit, to the millisecond, whatever counts."""
    knowing, asking = guard_factory(), guard_factory(remember_refusals_ms=0)
    pairs = []
    for text in SHORT:
        algorithm = eval(text, vars(limits))  # noqa: S307, RUF100 (texts of this file)
        pairs += [
            (text, f"key {number}", knowing.limiter(algorithm), asking.limiter(algorithm))
            for number in range(3)
        ]
    admitted = dict.fromkeys(SHORT, 0)
    end_s, turn = time.monotonic() + 1.6, 0
    while time.monotonic() < end_s:
        turn += 1
        for text, key, known, true in pairs:
            value = f"value {turn % 7}" if "Distinct" in text else None
            before = true.peek(key, value=value)
            decision = known.hit(key, value=value)
            assert decision.allowed >= before.allowed, (text, before, decision)
            admitted[text] += decision.allowed
    assert all(times >= 2 * 3 for times in admitted.values()), admitted


def test_an_override_that_ends_by_itself_is_not_outlived(guard: Guard) -> None:
    """Fewer places that hold for a moment refuse for that moment alone."""
    guard.override("login", "pair", account="vera", to="1/1h", for_ms=150)
    assert refused(guard, **VERA).retry_after_ms <= 150
    time.sleep(0.16)
    assert told(guard, **VERA).allowed


# Who is not meant by it.


def test_a_known_value_passes_where_a_new_one_is_refused(
    guard_factory: Guards, asked: Callable[[], int]
) -> None:
    """A client that may try no further account goes on at those it has tried."""
    spread = {"name": "spread", "by": ["client"], "distinct": "account", "limit": "2/1h"}
    guard = guard_factory(policies=one(spread))
    for account in ("vera", "omar"):
        assert told(guard, account=account, client=ADDRESS).allowed
    asked()
    assert [told(guard, account="mia", client=ADDRESS).allowed for _ in range(4)] == [False] * 4
    assert asked() == 1
    for account in ("vera", "omar"):
        assert told(guard, account=account, client=ADDRESS).allowed
    assert not told(guard, account="new", client=ADDRESS).allowed


def test_a_dear_attempt_refuses_no_cheaper_one(guard_factory: Guards) -> None:
    """That three places are not free does not say that one isn't."""
    guard = guard_factory(policies=one(log("account", ["account"], "4/1h")))
    assert told(guard, account="vera", cost=2).allowed
    assert not told(guard, account="vera", cost=3).allowed
    assert told(guard, account="vera", cost=1).allowed
    assert not told(guard, account="vera", cost=2).allowed
    assert told(guard, account="vera", cost=1).allowed


def test_a_limit_that_is_named_like_a_block_is_none(guard_factory: Guards) -> None:
    """What a limit called ``block`` refuses is not taken for an operator's block."""
    guard = guard_factory(policies=one(log("block", ["account", "client"], "4/1h")))
    assert told(guard, **VERA, cost=2).allowed
    assert not told(guard, **VERA, cost=3).allowed
    assert told(guard, **VERA, cost=1).allowed


def test_the_reserve_is_open_to_known_devices(guard_factory: Guards) -> None:
    """Whom the reserve alone refuses is no reason to refuse a known device."""
    budget = {"name": "budget", "by": ["account"], "fixed_window": "2/24h", "reserve": 1}
    guard = guard_factory(policies=one(budget))
    assert [told(guard, account="vera").allowed for _ in range(3)] == [True, False, False]
    assert told(guard, account="vera", device="a device").allowed
    assert not told(guard, account="vera", device="a device").allowed


def test_a_tier_is_told_of_its_own_numbers(guard_factory: Guards) -> None:
    """An account that is refused in one tier is not in another, and is told that one's numbers."""
    hour = log("hour", ["account"], "1/1h", tiers={"pro": "3/1h"})
    guard = guard_factory(policies=one(hour))
    assert [told(guard, account="vera").allowed for _ in range(3)] == [True, False, False]
    assert [told(guard, account="vera", tier="pro").allowed for _ in range(2)] == [True, True]
    for tier, limit in [("pro", 3), (None, 1)] * 2:
        (verdict,) = told(guard, account="vera", tier=tier).verdicts
        assert (verdict.limit, verdict.refuses) == (limit, True)


def test_another_action_has_its_own(guard_factory: Guards) -> None:
    """Limits of one name and number in two actions are two limits."""
    policies = {name: one(log("account", ["account"], "1/1h"))["login"] for name in ("login", "b")}
    guard = guard_factory(policies=policies)
    refused(guard, account="vera")
    assert told(guard, "b", account="vera").allowed


# What is asked each time.


def test_a_limit_that_counts_refusals_counts_each(
    guard_factory: Guards, asked: Callable[[], int]
) -> None:
    """Where hammering keeps a client out, every try reaches the store, whatever refuses it."""
    policies = one(
        log("client", ["client"], "3/1h", count_refused=True), log("account", ["account"], "1/1h")
    )
    guard = guard_factory(policies=policies)
    asked()
    assert [told(guard, **VERA).allowed for _ in range(4)] == [True, False, False, False]
    assert asked() == 4
    newest_ms = [guard.usage("login", client=ADDRESS)[0].newest_ms or 0]
    for _ in range(3):
        time.sleep(0.002)
        told(guard, **VERA)
        newest_ms.append(guard.usage("login", client=ADDRESS)[0].newest_ms or 0)
    assert all(later > before for before, later in pairwise(newest_ms))


def test_what_the_load_refuses_is_asked_each_time(
    guard_factory: Guards, asked: Callable[[], int]
) -> None:
    """The load ends whenever it ends: nobody is shed for longer."""
    guard = guard_factory(policies=one(log("client", ["client"], "4/1h", elastic=True)))
    guard.load(0.5, for_ms=60_000)
    assert [told(guard, client=ADDRESS).allowed for _ in range(2)] == [True, True]
    asked()
    for _ in range(4):
        with pytest.raises(Overloaded):
            guard.attempt("login", client=ADDRESS)
    assert asked() == 4


def test_an_account_that_must_be_recovered_is_asked_each_time(
    guard_factory: Guards, asked: Callable[[], int]
) -> None:
    """A recovery may come from anywhere, and its wait is always the same."""
    guard = guard_factory(policies=one(log("month", ["account"], "1/30d", recovery=True)))
    assert told(guard, account="vera").allowed
    asked()
    for _ in range(3):
        (verdict,) = told(guard, account="vera").verdicts
        assert (verdict.recovery, verdict.retry_after_ms) == (True, 900_000)
    assert asked() == 3


def test_recovery_is_asked_each_time_whatever_else_refuses(
    guard_factory: Guards, asked: Callable[[], int]
) -> None:
    """A full client that tries an account which must be recovered is remembered by neither."""
    policies = one(
        log("month", ["account"], "1/30d", recovery=True), log("client", ["client"], "1/1m")
    )
    guard = guard_factory(policies=policies)
    for who in (VERA, {"account": "vera", "client": "192.0.2.9"}, OMAR):
        told(guard, **who)
    asked()
    for _ in range(3):
        assert told(guard, **VERA).refused_by == ("month", "client")
    assert asked() == 3


def test_what_no_wait_would_admit_is_said_each_time(guard_factory: Guards) -> None:
    """An attempt too dear for its limit is told so again, whatever else refuses it."""
    policies = one(log("account", ["account"], "4/1h"), log("client", ["client"], "8/1h"))
    guard = guard_factory(policies=policies)
    assert told(guard, **OMAR, cost=4).allowed
    for _ in range(3):
        with pytest.raises(TooDear):
            guard.attempt("login", **OMAR, cost=5)


@pytest.mark.parametrize("clock", ["a replay's", "the guard's"])
def test_where_time_is_passed_nothing_is_remembered(
    guard_factory: Guards, clock: str, asked: Callable[[], int]
) -> None:
    """A replay goes on to when the limit admits, and is admitted."""
    now_ms = [1_800_000_000_000]
    own = {"clock": lambda: now_ms[0]} if clock == "the guard's" else {}
    guard = guard_factory(policies=one(log("account", ["account"], "1/1h")), **own)
    asked()
    for _ in range(3):
        passed: dict[str, Any] = {"now_ms": now_ms[0]} if clock == "a replay's" else {}
        assert told(guard, account="vera", **passed).allowed
        assert not told(guard, account="vera", **passed).allowed
        now_ms[0] += 3_600_000
    assert asked() == 6


def test_a_replay_does_not_hear_what_is_remembered(guard: Guard) -> None:
    """A passed clock goes by the store alone, beside requests that don't."""
    refused(guard, **VERA)
    assert told(guard, **VERA, now_ms=guard.now_ms() + 3_600_001).allowed


def test_zero_is_off(guard_factory: Guards, asked: Callable[[], int]) -> None:
    """With ``remember_refusals_ms=0`` every try asks the store."""
    guard = guard_factory(policies=LOGIN, remember_refusals_ms=0)
    refused(guard, **VERA)
    asked()
    for _ in range(5):
        told(guard, **VERA)
    assert asked() == 5


def test_a_shorter_memory_asks_sooner(guard_factory: Guards, asked: Callable[[], int]) -> None:
    """The setting is how long a refusal is remembered, and no repeat makes it longer."""
    guard = guard_factory(policies=LOGIN, remember_refusals_ms=60)
    refused(guard, **VERA)
    for _ in range(3):
        asked()
        end_s = time.monotonic() + 0.061
        while time.monotonic() < end_s:
            told(guard, **VERA)
        told(guard, **VERA)
        assert asked() >= 1


@pytest.mark.parametrize("value", [-1, 1_001, 1.5, True, "1", None])
def test_a_memory_out_of_range_is_refused(value: Any) -> None:
    """AG012 names the setting and what it may be."""
    with pytest.raises(
        ConfigurationError, match=r"AG012 remember_refusals_ms: .*0 \(off\) to 1000"
    ):
        Guard("valkey://127.0.0.1:1/0", secret=SECRET, remember_refusals_ms=value)


# A store that is away, and answers that are late.


def test_a_known_refusal_stands_while_the_store_is_away(
    own_valkey: EmbeddedValkey, guard_factory: Guards
) -> None:
    """It is still a refusal; whoever is not known to be refused gets no verdict."""
    guard = guard_factory(store=own_valkey.url, policies=LOGIN)
    refused(guard, **VERA)
    os.kill(own_valkey.pid, signal.SIGKILL)
    with pytest.raises(Denied) as caught:
        guard.attempt("login", **VERA)
    assert caught.value.decision.refused_by == ("pair",)
    with pytest.raises(StoreUnavailable):
        guard.attempt("login", **OMAR)


@pytest.mark.parametrize("how", ["clear", "succeed", "release"])
def test_a_refusal_that_crosses_an_unlock_is_not_remembered(
    valkey_server: EmbeddedValkey, guard_factory: Guards, how: str
) -> None:
    """Nobody knows which the store saw first: the next try asks, and is admitted."""
    hold, held, on_their_way = threading.Event(), threading.Event(), threading.Event()

    def answer(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        reply = talk.relay(command)
        if hold.is_set():
            hold.clear()
            on_their_way.set()
            assert held.wait(20)
        yield reply

    with Wire(answer, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url, policies=one(log("pair", ["account"], "1/1h")))
        first = guard.attempt("login", account="vera")
        hold.set()
        decisions: list[Decision] = []
        late = threading.Thread(target=lambda: decisions.append(told(guard, account="vera")))
        late.start()
        assert on_their_way.wait(20)
        if how == "clear":
            guard_factory(policies=guard.policies).clear("login", account="vera")
        else:
            getattr(first, how)()
        held.set()
        late.join(20)
        assert [decision.allowed for decision in decisions] == [False]
        assert told(guard, account="vera").allowed


# Threads, processes, and how much of it there is.


def _race(guard: Guard, rounds: int) -> None:
    """
    Let one who is admitted come and go while three, who never are, ask all the time.

    The three are refused by their client's full log, and by the account's while its one place is
    taken: by both they are remembered. Whoever begins to ask after the place was given back, and is
    answered before it is taken again, must not be told of the account's.
    """
    over, taken, moment = threading.Event(), threading.Event(), [0]  # even: the place is free
    wrong, right = list[Decision](), list[Decision]()

    def hammer() -> None:
        while not over.is_set():
            began = moment[0]
            decision = told(guard, **VERA)
            if "account" in decision.refused_by:
                right.append(decision)
                taken.set()
            if decision.allowed or (
                "account" in decision.refused_by and began % 2 == 0 and moment[0] == began
            ):
                wrong.append(decision)

    assert told(guard, account="mia", client=ADDRESS).allowed
    crowd = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in crowd:
        thread.start()
    try:
        for number in range(rounds):
            moment[0] += 1
            taken.clear()
            attempt = guard.attempt("login", account="vera", client="198.51.100.7")
            assert taken.wait(20)  # all know it as taken, or are asking
            if number % 3 == 0:
                guard.clear("login", account="vera")
            elif number % 3 == 1:
                attempt.succeed()
            else:
                attempt.release()
            moment[0] += 1
            time.sleep(0.002)
    finally:
        over.set()
        for thread in crowd:
            thread.join()
    assert wrong == []
    assert len(right) >= 2 * rounds


def _crowded(guard_factory: Guards) -> Guard:
    policies = one(log("account", ["account"], "1/1h"), log("client", ["client"], "1/1h"))
    return guard_factory(policies=policies, allowlist=["198.51.100.0/24"], remember_refusals_ms=50)


def test_what_is_free_again_is_free_for_every_thread(guard_factory: Guards) -> None:
    """No refusal that another thread was told outlives the success, release or clear after it."""
    _race(_crowded(guard_factory), 30)


@pytest.mark.slow
def test_what_is_free_again_is_free_for_every_thread_at_length(guard_factory: Guards) -> None:
    """The same, 500 times, with threads that take turns as often as Python lets them."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        _race(_crowded(guard_factory), 500)
    finally:
        sys.setswitchinterval(usual_s)


def test_eight_threads_flood_for_one_command(guard: Guard, asked: Callable[[], int]) -> None:
    """What one thread was told every thread knows."""
    refused(guard, **VERA)
    asked()
    allowed: list[bool] = []

    def flood() -> None:
        allowed.extend(told(guard, **VERA).allowed for _ in range(50))

    crowd = [threading.Thread(target=flood) for _ in range(8)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert (len(allowed), any(allowed), asked()) == (400, False, 0)


#: Runs apart from the test: forking a process with pytest's threads is asking for trouble.
FORKING: Final = """
import os, sys
from authguard import Denied, Guard
guard = Guard(sys.argv[1], secret=sys.argv[2], deadline_ms=10_000, policies={"login": {"limits": [
    {"name": "account", "by": ["account"], "sliding_log": "1/1h"}]}})
def allowed():
    try:
        guard.attempt("login", account="vera")
    except Denied:
        return False
    return True
told = [allowed(), allowed()]
child = os.fork()
told += [allowed()]
if child:
    assert os.waitpid(child, 0)[1] == 0
    guard.clear("login", account="vera")
    told += [allowed()]
else:
    guard.clear("login", account="vera")
    told += [allowed(), allowed()]
assert told == [True, False, False, True, False][:len(told)], (child, told)
os._exit(0)
"""


def test_a_forked_process_remembers_for_itself(valkey_url: str) -> None:
    """What was known before the fork both know, and each heeds its own unlocks."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, valkey_url, SECRET],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _resident_bytes() -> int:
    """Tell how much memory the process holds."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.parametrize("differ", ["by key", "by value"])
def test_a_flood_of_different_refusals_takes_no_more_memory(
    guard_factory: Guards, differ: str
) -> None:
    """The first 20,000 take a few megabytes; the next 80,000 none."""
    spread = {"name": "spread", "by": ["client"], "distinct": "account", "limit": "1/1h"}
    guard = guard_factory(
        policies=one(spread if differ == "by value" else LOGIN["login"]["limits"][2])
    )
    if differ == "by value":
        told(guard, **VERA)
    else:
        guard.block(client=ADDRESS)

    def flood(first: int, last: int) -> int:
        for number in range(first, last):
            assert not told(guard, account=f"name {number}", client=ADDRESS).allowed
        return _resident_bytes()

    before = flood(0, 2_000)
    full = flood(2_000, 20_000)
    after = flood(20_000, 100_000)
    assert full - before < 32 * 2**20
    assert after - full < 4 * 2**20
