"""Rule 5 in the small: which entries of a log a success takes, and which it never takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

from authguard import Cleared
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard
    from authguard._core.calls import ScriptCall
    from tests.conftest import Clock
    from tests.lua.conftest import Door

T = TypeVar("T")
A, B = "203.0.113.9", "198.51.100.7"


@pytest.mark.parametrize("apart_ms", [0, 1, 5000], ids="{} ms apart".format)
def test_the_same_client_before_itself(
    door: Callable[..., Door], clock: Clock, apart_ms: int
) -> None:
    """Rule 5: forgiven is what this client reserved before; later and others' entries stay."""
    login = door(("account", "9/15m"), ("client", "9/15m"), clock=clock)
    login.fail(1, client=A)
    clock.advance(apart_ms)
    login.fail(1, client=B)
    clock.advance(apart_ms)
    success = login.attempt(client=A)
    clock.advance(apart_ms)
    login.fail(2, client=A)
    success.succeed()
    assert login.used("account") == 3  # B's one, and A's two later ones
    assert login.used("client", client=A) == 3
    assert login.used("client", client=B) == 1


def test_what_was_forgiven_while_pending(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 5: a pending try that a later success forgave frees nothing more when it succeeds."""
    login = door(("account", "9/15m"), ("client", "9/15m"), clock=clock)
    earlier, success, later = (login.attempt() for _ in range(3))
    success.succeed()
    assert login.used("account") == 1
    login.fail(client=B)
    earlier.succeed()
    assert login.used("account") == 2
    later.succeed()
    assert (login.used("account"), login.used("client")) == (1, 0)


@pytest.mark.parametrize(
    ("failing", "succeeding", "left"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", 0),
        ("2001:db8::1", "2001:db8:0:1::1", 2),
        ("203.0.113.9", "::ffff:203.0.113.9", 0),
        ("203.0.113.9", "203.0.113.10", 2),
    ],
)
def test_who_is_the_same_client(
    door: Callable[..., Door], clock: Clock, failing: str, succeeding: str, left: int
) -> None:
    """Rule 5: an IPv6 /64, or an IPv4 address, mapped or not, is one client; the next is not."""
    login = door(("account", "9/15m"), clock=clock)
    login.fail(2, client=failing)
    login.sign_in(client=succeeding)
    assert login.used() == left


def test_other_accounts_of_the_client_stay(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Rule 5: eve's success from an address forgives nothing that it did to vera."""
    login = door(("pair", "5/15m"), ("account", "5/15m"), clock=clock)
    login.fail(3, account="vera")
    before = store()
    login.fail(2, account="eve")
    login.sign_in("eve")
    assert store() == before


def test_twice_is_once(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """A second succeed() changes nothing, whatever else the client reserved in that millisecond."""
    login = door(("account", "9/15m"), ("client", "9/15m"), clock=clock)
    before, success, after = (login.attempt() for _ in range(3))
    success.succeed()
    once = store()
    success.succeed()
    success.release()
    assert store() == once
    assert login.used("client") == 2
    before.succeed()
    after.succeed()
    assert store() == {}


class Twice(ValkeyStore):
    """A store that is told of every success twice, and must not mind."""

    def run(self, call: ScriptCall[T]) -> T:
        """Run a settle a second time; the first answer is the one that counts."""
        answer = super().run(call)
        if call.script.verb == "settle":
            assert super().run(call) == Cleared(entries=0, locks=0)
        return answer


def test_a_settle_sent_twice_is_a_settle_sent_once(
    door: Callable[..., Door], clock: Clock, valkey_url: str
) -> None:
    """Even the store, told twice, takes back the named reservation alone, with locks and all."""
    limits = ("account", "3/15m", {"lockout": "15m"}), ("client", "9/15m")
    login = door(*limits, clock=clock, store=Twice(valkey_url, deadline_ms=PATIENT_MS))
    login.attempt(client=B)
    success, other = login.attempt(), login.attempt()
    success.succeed()
    assert (login.used("client"), login.used("client", client=B)) == (1, 1)
    assert login.verdict().locked
    other.succeed()
    assert (login.used("account"), login.used("client")) == (1, 0)
    assert not login.verdict().locked


def test_release_forgives_nothing(door: Callable[..., Door], clock: Clock) -> None:
    """Where the credential was never looked at, only the own reservation goes, with its lock."""
    login = door(("account", "3/15m", {"lockout": "15m"}), ("client", "9/15m"), clock=clock)
    login.fail(2)
    attempt = login.attempt()
    assert login.verdict().locked
    attempt.release()
    attempt.succeed()
    assert (login.used("account"), login.used("client")) == (2, 2)
    assert not login.verdict().locked
    assert not attempt.succeeded


def test_without_a_client_nothing_is_forgiven(
    guard_factory: Callable[..., Guard], clock: Clock
) -> None:
    """Where no client is known, a success takes back its own alone: who failed is unknown."""
    limits = [{"name": "account", "by": ["account"], "sliding_log": "9/15m"}]
    guard = guard_factory(policies={"login": {"limits": limits}}, clock=clock)
    for client in (None, None, A):
        guard.attempt("login", account="vera", client=client)
    guard.attempt("login", account="vera").succeed()
    assert guard.peek("login", account="vera").remaining == 6
    guard.attempt("login", account="vera", client=A).succeed()
    assert guard.peek("login", account="vera").remaining == 7


@pytest.mark.parametrize("lockout", [{}, {"lockout": "15m"}], ids=["window", "lock"])
def test_a_success_after_its_entry_is_gone(
    door: Callable[..., Door],
    clock: Clock,
    store: Callable[[], dict[bytes, bytes]],
    lockout: dict[str, str],
) -> None:
    """Rule 8: an entry that left the window frees nothing, and forgives nothing either."""
    login = door(("account", "5/15m", lockout), clock=clock)
    slow = login.attempt()
    clock.advance(10_000)
    login.fail(2)
    clock.advance(890_000)
    before = store()
    slow.succeed()
    assert store() == before
    assert login.used() == 2


def test_a_success_after_a_clear(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """An attempt whose entry an operator cleared takes nothing of what was counted since."""
    login = door(("account", "5/15m"), ("client", "9/15m"), clock=clock)
    slow = login.attempt()
    assert login.guard.clear("login", account="vera").entries == 1
    assert login.guard.clear("login", client=A).entries == 1
    login.fail(2)
    before = store()
    slow.succeed()
    assert store() == before


def test_the_client_of_each_entry_is_looked_at(door: Callable[..., Door], clock: Clock) -> None:
    """Rule 5: between a hundred other clients' failures, only the successful one's own go."""
    login = door(("account", "500/15m"), clock=clock)
    for number in range(100):
        login.fail(client=f"198.51.100.{number}")
        login.fail(client=A)
    login.sign_in(client=A)
    assert login.used() == 100
