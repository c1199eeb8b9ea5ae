"""A pardon while one secret takes another's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from tests.conftest import Clock

OLD = "the old secret, in use for a year or so"
NEW = "the new secret, made when the old one leaked"
HERE, THERE = "198.51.100.7", "203.0.113.9"
PAIR = {"name": "pair", "by": ["account", "client"], "sliding_log": "3/15m", "lockout": "1h"}
POLICY = {"login": {"limits": [PAIR]}}


@pytest.fixture
def with_secrets(guard_factory: Callable[..., Guard], clock: Clock) -> Callable[..., Guard]:
    """Make guards with any secrets, on one clock."""

    def make(*secrets: str) -> Guard:
        secret: Any = secrets[0] if len(secrets) == 1 else list(secrets)
        return guard_factory(policies=POLICY, clock=clock, secret=secret)

    return make


def fill(guard: Guard, client: str) -> None:
    """Lock vera's pair with a client."""
    for _ in range(3):
        guard.attempt("login", account="vera", client=client)
    with pytest.raises(Denied):
        guard.attempt("login", account="vera", client=client)


def left(guard: Guard, client: str) -> int:
    """Tell how many places vera's pair with a client has."""
    return guard.peek("login", account="vera", client=client).verdicts[0].remaining


@pytest.mark.parametrize("pardoner", [(NEW, OLD), (OLD, NEW)], ids=["newest first", "oldest first"])
def test_a_pardon_holds_under_both_secrets(
    with_secrets: Callable[..., Guard], clock: Clock, pardoner: tuple[str, str]
) -> None:
    """B139: what was counted under either, by any worker, is over for the workers of both."""
    fill(with_secrets(OLD), HERE)
    fill(with_secrets(NEW, OLD), THERE)
    clock.advance(1)
    assert with_secrets(*pardoner).pardon("login", account="vera") == ("pair",)
    for secrets in ((OLD,), (NEW, OLD), (NEW,)):
        guard = with_secrets(*secrets)
        assert [left(guard, client) for client in (HERE, THERE)] == [3, 3]
    fill(with_secrets(NEW, OLD), HERE)
    assert left(with_secrets(OLD), HERE) == left(with_secrets(NEW), HERE) == 0


def test_each_secret_has_its_key_and_its_end(
    with_secrets: Callable[..., Guard], client: valkey.Valkey
) -> None:
    """Two keys, one under each secret, both with an expiry."""
    with_secrets(NEW, OLD).pardon("login", account="vera")
    lives: list[Any] = [client.pttl(key) for key in client.scan_iter()]
    assert len(lives) == 2
    assert all(life_ms > 0 for life_ms in lives)
