"""Refusals known already on a cluster: no command for any group; what is given back counts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied, StoreUnavailable
from authguard.stores.valkey import ValkeyStore
from tests.cluster.conftest import forget_counts, guarded, ran
from tests.conftest import PATIENT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard
    from authguard._core.calls import ScriptCall
    from tests.cluster.conftest import Map
    from tests.servers import Cluster

pytestmark = pytest.mark.slow

#: One at a time from a client, which is asked first; an account is full after one failure.
NARROW = {
    "login": {
        "limits": [
            {"name": "client", "by": ["client"], "sliding_log": "1/1h"},
            {"name": "account", "by": ["account"], "sliding_log": "1/1h"},
        ]
    }
}
HERE: dict[str, Any] = {"client": "192.0.2.7"}


class Interrupted(ValkeyStore):
    """The store; something happens before the second call from now on."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.happens: Callable[[], object] | None = None
        self._calls = 0

    def before_the_second(self, happens: Callable[[], object]) -> None:
        """Say what happens."""
        self.happens, self._calls = happens, 0

    def run(self, call: ScriptCall[Any]) -> Any:
        """Run it, after what happens."""
        self._calls += 1
        if self._calls == 2 and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
        return super().run(call)


def refuses(guard: Guard, account: str, client: str = "192.0.2.7") -> tuple[str, ...]:
    """Attempt; name the limits that refuse it."""
    try:
        guard.attempt("login", account=account, client=client)
    except Denied as error:
        return error.decision.refused_by
    return ()


def commands(cluster: Cluster) -> int:
    """Count the scripts that have run."""
    return sum(sum(of.values()) for of in ran(cluster).values())


def test_a_repeat_asks_no_node(where: Map) -> None:
    """A locked account's repeats cost nothing, from each of its clients once it was asked."""
    who = {"account": "vera", "client": "192.0.2.7"}
    assert [refuses(where.guard, **who) for _ in range(6)] == [()] * 5 + [("account",)]
    assert refuses(where.guard, "vera", "192.0.2.8") == ("account",)
    forget_counts(where.cluster)
    for _ in range(30):
        assert refuses(where.guard, **who) == ("account",)
        assert refuses(where.guard, "vera", "192.0.2.8") == ("account",)
    assert commands(where.cluster) == 0
    where.guard.clear("login", account="vera")
    assert refuses(where.guard, **who) == ()


def test_a_blocked_accounts_repeats_ask_no_node(where: Map) -> None:
    """An operators' block is remembered of whom it blocks, and of nobody else at their address."""
    where.guard.block(account="vera")
    assert refuses(where.guard, "vera") == ("block",)
    forget_counts(where.cluster)
    for _ in range(30):
        assert refuses(where.guard, "vera") == ("block",)
    assert commands(where.cluster) == 0
    assert refuses(where.guard, "omar") == ()
    where.guard.unblock(account="vera")
    assert refuses(where.guard, "vera") == ()


@pytest.mark.parametrize("ends", ["refused", "without an answer"])
def test_a_place_that_was_held_for_a_moment_is_free_again(cluster: Cluster, ends: str) -> None:
    """Who met the place of an attempt that came to nothing is let in as soon as it is back."""
    store = Interrupted(cluster.url, deadline_ms=PATIENT_MS)
    met: list[tuple[str, ...]] = []

    def another_tries() -> None:
        thread = threading.Thread(target=lambda: met.append(refuses(guard, "omar")))
        thread.start()
        thread.join()
        if ends != "refused":
            raise StoreUnavailable("out of reach")

    with guarded(cluster, store=store, policies=NARROW) as guard:
        assert refuses(guard, "vera", "192.0.2.99") == ()  # the account is full
        store.before_the_second(another_tries)
        if ends == "refused":
            assert refuses(guard, "vera") == ("account",)
        else:
            with pytest.raises(StoreUnavailable):
                guard.attempt("login", account="mia", **HERE)
        assert met == [("client",)]
        assert refuses(guard, "omar") == ()
