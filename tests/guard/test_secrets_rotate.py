"""A change of secrets gives nobody a fresh budget: while both are listed, both are counted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, Denied, SlidingLog

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard

OLD = "the old secret, in use for a year or so"
NEW = b"the new secret, made when the old one leaked"
VERA = {"account": "vera", "client": "203.0.113.9"}
POLICIES = {
    "login": {
        "limits": [
            {"name": "pair", "by": ["account", "client"], "sliding_log": "8/15m"},
            {"name": "account", "by": ["account"], "sliding_log": "10/15m", "lockout": "1h"},
        ]
    }
}


@pytest.fixture
def with_secrets(
    guard_factory: Callable[..., Guard], clock: Callable[[], int]
) -> Callable[..., Guard]:
    """Make guards with any secrets, on one clock."""
    return lambda *secrets: guard_factory(
        policies=POLICIES, clock=clock, secret=secrets[0] if len(secrets) == 1 else list(secrets)
    )


def test_what_stood_under_the_old_secret_still_counts(with_secrets: Callable[..., Guard]) -> None:
    """Failures before the change count after it, to the last place."""
    before, during = with_secrets(OLD), with_secrets(NEW, OLD)
    for _ in range(5):
        before.attempt("login", **VERA)
    for _ in range(3):
        during.attempt("login", **VERA)
    with pytest.raises(Denied) as denied:
        during.attempt("login", **VERA)
    assert denied.value.decision.refused_by == ("pair",)


def test_old_and_new_workers_share_one_budget(with_secrets: Callable[..., Guard]) -> None:
    """While workers are replaced one by one, all of them together admit what one would."""
    workers = [with_secrets(OLD), with_secrets(NEW, OLD)] * 4
    for worker in workers:
        worker.attempt("login", **VERA)
    for worker in workers:
        with pytest.raises(Denied):
            worker.attempt("login", **VERA)


def test_when_the_old_secret_goes_the_new_log_is_whole(with_secrets: Callable[..., Guard]) -> None:
    """What was counted since the change stays counted when the old secret is dropped."""
    with_secrets(OLD).attempt("login", **VERA)
    for _ in range(3):
        with_secrets(NEW, OLD).attempt("login", **VERA)
    assert with_secrets(NEW).peek("login", **VERA).remaining == 5
    assert with_secrets(NEW, OLD).peek("login", **VERA).remaining == 4


def test_a_lock_holds_and_is_told_of_once(with_secrets: Callable[..., Guard], clock: Any) -> None:
    """A lock that was set under both stands under each, and one verdict tells of it."""
    during = with_secrets(NEW, OLD)
    for number in range(10):
        verdicts = during.attempt("login", account="vera", client=f"203.0.113.{number}").decision
        assert [verdict.name for verdict in verdicts.verdicts] == ["pair", "account"]
    assert [verdict.lock_set for verdict in verdicts.verdicts] == [False, True]
    for secrets in ((OLD,), (NEW, OLD), (NEW,)):
        decision = with_secrets(*secrets).peek("login", **VERA)
        assert [verdict.locked for verdict in decision.verdicts] == [False, True]
        assert decision.retry_after_ms == 3_600_000
    clock.advance(3_600_000)
    assert during.peek("login", **VERA).remaining == 8


def test_a_lock_from_before_the_change_holds(with_secrets: Callable[..., Guard]) -> None:
    """A lock that stands under the old secret alone refuses, and its end is told."""
    before, during = with_secrets(OLD), with_secrets(NEW, OLD)
    for number in range(10):
        before.attempt("login", account="vera", client=f"203.0.113.{number}")
    with pytest.raises(Denied) as denied:
        during.attempt("login", account="vera", client="198.51.100.7")
    verdict = denied.value.decision.verdicts[1]
    assert (verdict.name, verdict.locked, verdict.remaining) == ("account", True, 0)
    assert denied.value.retry_after == 3600


def test_a_lock_is_told_with_its_own_end(guard_factory: Callable[..., Guard], clock: Any) -> None:
    """Where the new log's lock is set, its end is told, however long the old log still holds."""
    limits = [{"name": "a", "by": ["account"], "sliding_log": "3/24h", "lockout": ["15m", "1h"]}]
    before, during = (
        guard_factory(policies={"login": {"limits": limits}}, clock=clock, secret=secret)
        for secret in (OLD, [NEW, OLD])
    )
    for _ in range(3):
        before.attempt("login", account="vera")
    clock.advance(900_000)
    for _ in range(3):
        (verdict,) = during.attempt("login", account="vera").decision.verdicts
    assert verdict.lock_set
    assert verdict.reset_after_ms == during.peek("login", account="vera").retry_after_ms


def test_success_and_clear_reach_both(
    with_secrets: Callable[..., Guard], client: valkey.Valkey
) -> None:
    """A success gives back its places under both secrets; a clear empties both, counted once."""
    during = with_secrets(NEW, OLD)
    during.attempt("login", **VERA).succeed()
    assert client.dbsize() == 0
    for _ in range(4):
        during.attempt("login", **VERA)
    assert client.dbsize() == 4
    assert during.clear("login", **VERA).entries == 8
    assert with_secrets(OLD).peek("login", **VERA).remaining == 8
    assert with_secrets(NEW).peek("login", **VERA).remaining == 8


def test_a_burst_during_the_change_admits_no_more(with_secrets: Callable[..., Guard]) -> None:
    """A31 during a change of secrets: 40 parallel guesses at limits of 8 and 10 admit 8."""
    workers = [with_secrets(OLD), with_secrets(NEW, OLD)]
    barrier = threading.Barrier(40)
    admitted: list[int] = []

    def guess(number: int) -> None:
        barrier.wait()
        try:
            workers[number % 2].attempt("login", **VERA)
        except Denied:
            return
        admitted.append(number)

    threads = [threading.Thread(target=guess, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) == 8


def test_a_limiter_rotates_too(with_secrets: Callable[..., Guard]) -> None:
    """One algorithm by itself counts under both secrets as well."""
    limit = SlidingLog("2/1m")
    with_secrets(OLD).limiter(limit).hit("key")
    during = with_secrets(NEW, OLD).limiter(limit)
    assert during.hit("key").remaining == 0
    assert not during.hit("key").allowed
    assert with_secrets(NEW).limiter(limit).peek("key").remaining == 1


def test_all_that_may_be_configured_can_be_asked(guard_factory: Callable[..., Guard]) -> None:
    """A hundred limits with 32 lockouts each, under eight secrets, are one call that works."""
    lockout = [f"{minutes}m" for minutes in range(1, 33)]
    made = [
        {
            "name": f"pair-{n}",
            "by": ["account", "client"],
            "sliding_log": "2/1h",
            "lockout": lockout,
        }
        for n in range(100)
    ]
    guard = guard_factory(
        secret=[f"{NEW} {number}" for number in range(8)], policies={"login": {"limits": made}}
    )
    who = {"account": "vera", "client": "192.0.2.7"}
    for _ in range(2):
        assert guard.attempt("login", **who).decision.allowed
    decision = guard.peek("login", **who)
    assert (len(decision.refused_by), decision.retry_after) == (100, 60)


@pytest.mark.parametrize(
    "secrets",
    [
        *([], ["short"], [NEW, "short"], [NEW, None], [NEW, NEW], [OLD, OLD.encode()]),
        *([NEW, "x" * 64], [f"{NEW} {number}" for number in range(9)]),
    ],
)
def test_a_wrong_list_stops_the_start(
    guard_factory: Callable[..., Guard], secrets: list[Any]
) -> None:
    """AG011: no secret, a bad one, one that stands twice, or more than eight; shows no value."""
    with pytest.raises(ConfigurationError) as wrong:
        guard_factory(secret=secrets)
    assert wrong.value.code == "AG011"
    assert not any(text in str(wrong.value) for text in ("the old", "the new", "xxx"))
