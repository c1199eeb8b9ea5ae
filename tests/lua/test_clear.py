"""An operator's clear: which logs it empties, and which it leaves alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from tests.conftest import Clock
    from tests.lua.conftest import Door

A, B = "203.0.113.9", "198.51.100.7"
LIMITS = [("pair", "9/15m"), ("account", "4/15m", {"lockout": "15m"}), ("client", "9/15m")]


@pytest.mark.parametrize(
    ("who", "left", "freed"),
    [
        ({"account": "vera"}, {"pair": 3, "account": 0, "client": 4}, (4, 1)),
        ({"client": A}, {"pair": 3, "account": 4, "client": 0}, (4, 0)),
        ({"account": "vera", "client": A}, {"pair": 0, "account": 0, "client": 4}, (7, 1)),
        ({"account": "vera", "client": B}, {"pair": 3, "account": 0, "client": 4}, (5, 1)),
        ({"account": "omar"}, {"pair": 3, "account": 4, "client": 4}, (1, 0)),
    ],
    ids=lambda value: " and ".join(value) if isinstance(value, dict) else "",
)
def test_what_is_given_is_cleared(
    door: Callable[..., Door],
    clock: Clock,
    who: dict[str, Any],
    left: dict[str, int],
    freed: tuple[int, int],
) -> None:
    """An account's logs and its pair, or a client's; their locks end; no other is touched."""
    login = door(*LIMITS, clock=clock)
    login.fail(1, account="omar", client=A)
    login.fail(1, account="vera", client=B)
    login.fail(3, account="vera", client=A)
    cleared = login.guard.clear("login", **who)
    assert (cleared.entries, cleared.locks) == freed
    assert {limit: login.used(limit) for limit in left} == left
    assert login.verdict().locked is (left["account"] == 4)


def test_twice_frees_nothing_more(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """A second clear says that there was nothing, and changes nothing."""
    login = door(*LIMITS, clock=clock)
    login.fail(4)
    login.guard.clear("login", account="vera", client=A)
    before = store()
    again = login.guard.clear("login", account="vera", client=A)
    assert (again.entries, again.locks) == (0, 0)
    assert store() == before


def test_another_action_stays(
    door: Callable[..., Door], clock: Clock, store: Callable[[], dict[bytes, bytes]]
) -> None:
    """Rule 6: clearing one action leaves the logs and locks of every other."""
    unlock = door(*LIMITS, action="unlock", clock=clock)
    unlock.fail(4)
    before = store()
    login = door(*LIMITS, clock=clock)
    login.fail(2)
    login.guard.clear("login", account="vera", client=A)
    login.guard.clear("login", client=A)
    assert store() == before


def test_an_error_leaves_no_half_cleared_state(
    door: Callable[..., Door], clock: Clock, client: valkey.Valkey
) -> None:
    """A key of a wrong type ends a clear before it has emptied any log."""
    login = door(*LIMITS, clock=clock)
    login.fail(4)  # fills the account's log, so that a lock stands beside it
    (lock,) = [key for key in client.scan_iter() if key.endswith(b"!")]
    client.delete(lock)
    logs = {key: client.get(key) for key in client.scan_iter()}
    client.rpush(lock, "no lock")
    with pytest.raises(StoreUnavailable):
        login.guard.clear("login", account="vera", client=A)
    client.delete(lock)
    assert {key: client.get(key) for key in client.scan_iter()} == logs
