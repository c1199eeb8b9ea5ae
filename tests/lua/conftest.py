"""What the tests of the counting rules share: a door behind a guard, and a look into the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Attempt, Decision, Guard, Verdict

#: What a limit of that name counts by.
COUNTED_BY = {
    "pair": ["account", "client"],
    "account": ["account"],
    "day": ["account"],
    "month": ["account"],
    "client": ["client"],
    "network": ["network"],
}


@dataclass(frozen=True)
class Door:
    """One action behind a guard, as the tests knock at it."""

    guard: Guard
    action: str = "login"

    def attempt(self, account: str = "vera", client: str = "203.0.113.9", cost: int = 1) -> Attempt:
        """Reserve a place and leave it; that is a failure."""
        return self.guard.attempt(self.action, account=account, client=client, cost=cost)

    def sign_in(self, account: str = "vera", client: str = "203.0.113.9", cost: int = 1) -> None:
        """Reserve a place and succeed."""
        with self.attempt(account, client, cost) as attempt:
            attempt.succeed()

    def fail(self, times: int = 1, **who: Any) -> Decision:
        """Fail so many times; gives the last decision."""
        return [self.attempt(**who).decision for _ in range(times)][-1]

    def refusal(self, **who: Any) -> Decision:
        """Try, and be refused."""
        with pytest.raises(Denied) as caught:
            self.attempt(**who)
        return caught.value.decision

    def verdict(
        self, limit: str = "account", account: str = "vera", client: str = "203.0.113.9"
    ) -> Verdict:
        """Ask one limit, without trying."""
        decision = self.guard.peek(self.action, account=account, client=client)
        return next(verdict for verdict in decision.verdicts if verdict.name == limit)

    def used(
        self, limit: str = "account", account: str = "vera", client: str = "203.0.113.9"
    ) -> int:
        """Ask how many entries of a limit count now."""
        verdict = self.verdict(limit, account, client)
        return verdict.limit - verdict.remaining


@pytest.fixture
def door(guard_factory: Callable[..., Guard]) -> Callable[..., Door]:
    """Make doors: each limit is (name, rate) or (name, rate, options); see COUNTED_BY."""

    def make(*limits: tuple[Any, ...], action: str = "login", **settings: Any) -> Door:
        tables = [
            {"name": name, "by": COUNTED_BY[name], "sliding_log": rate, **dict(*options)}
            for name, rate, *options in limits
        ]
        policies = {action: {"limits": tables}} if tables else None
        return Door(guard_factory(policies=policies, **settings), action)

    return make


@pytest.fixture
def store(client: valkey.Valkey) -> Callable[[], dict[bytes, bytes]]:
    """Read all of the store: every key with its value."""

    def read() -> dict[bytes, bytes]:
        values: dict[bytes, bytes] = {key: client.get(key) for key in sorted(client.scan_iter())}
        return values

    return read
