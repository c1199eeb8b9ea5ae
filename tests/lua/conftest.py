"""What the tests of the counting rules share: a door behind a guard, and a look into the store."""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Denied, Policy, PolicyLimit
from authguard._core import calls
from authguard._core.attempt import Reservation
from authguard._core.keys import Shape
from authguard.identity import Pseudonyms
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard import Attempt, Cleared, Decision, Guard, Verdict
    from authguard._core.keys import Binding
    from authguard.decision import Usage
    from authguard.limits import Algorithm
    from tests.conftest import Clock

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


@dataclass(frozen=True)
class Gate:
    """Limits of any algorithm, asked below the guard: what is known is named by the test."""

    store: ValkeyStore
    policy: Policy
    clock: Callable[[], int] | None
    pseudonyms: tuple[Pseudonyms, ...]

    def bind(self, *, blocks: bool = False, **who: str) -> Binding:
        """Bind the limits that apply to these subjects; the client's is there if none is given."""
        who = {"client": "203.0.113.9", "global": ""} | who
        shape = Shape.of(self.policy, frozenset(who), secrets=len(self.pseudonyms), blocks=blocks)
        return shape.bind(*self.named(who))

    def named(self, who: dict[str, str]) -> list[dict[str, bytes]]:
        """Name subjects under every secret."""
        return [
            {part: each.of(part, value) for part, value in who.items()} for each in self.pseudonyms
        ]

    def attempt(self, *, cost: int = 1, attempt_id: bytes = b"", **who: str) -> Tried:
        """Try once; an admitted one stands until it is settled."""
        attempt_id = attempt_id or self.pseudonyms[0].of("client", "c")[:3] + token_bytes(2)
        binding = self.bind(**who)
        reservation = Reservation(binding, attempt_id, cost, knows_client=True)
        return Tried(self, reservation, self.store.run(reservation.acquire(self.now_ms)))

    @property
    def now_ms(self) -> int | None:
        """The clock that counts; None: the store's own."""
        return None if self.clock is None else self.clock()

    def peek(self, *, cost: int = 1, **who: str) -> Decision:
        """Ask without trying."""
        return self.store.run(calls.peek(self.bind(**who), cost=cost, now_ms=self.now_ms))

    def clear(self, **who: str) -> Cleared:
        """Empty the limits that apply."""
        return self.store.run(calls.clear(self.bind(**who), now_ms=self.now_ms))

    def recover(self, **who: str) -> Cleared:
        """Recover as an account's owner does."""
        return self.store.run(calls.recover(self.bind(**who), now_ms=self.now_ms))

    def inspect(self, **who: str) -> list[Usage]:
        """Look at the limits that apply."""
        return list(self.store.run(calls.inspect(self.bind(**who), now_ms=self.now_ms)))


@dataclass(frozen=True)
class Tried:
    """What came of one try, and the way to settle it."""

    gate: Gate
    reservation: Reservation
    decision: Decision

    @property
    def allowed(self) -> bool:
        """Whether it was admitted."""
        return self.decision.allowed

    @property
    def wait_ms(self) -> int:
        """How long it must wait."""
        return self.decision.retry_after_ms

    def settle(self, *, succeeded: bool) -> Cleared:
        """Take it back; may be called again, as a duplicated message would."""
        return self.gate.store.run(
            calls.settle(
                self.reservation.binding,
                reserved_at_ms=self.decision.now_ms,
                attempt_id=self.reservation.attempt_id,
                cost=self.reservation.cost,
                forgive=succeeded,
                now_ms=self.gate.now_ms,
            )
        )

    def succeed(self) -> Cleared:
        """Prove it."""
        return self.settle(succeeded=True)

    def release(self) -> Cleared:
        """Say that nothing was looked at, or sent."""
        return self.settle(succeeded=False)


@pytest.fixture
def gate(valkey_url: str, clock: Clock) -> Iterator[Callable[..., Gate]]:
    """Make gates: each limit is (by, algorithm), named l0, l1 …; the clock is the test's."""
    stores: list[ValkeyStore] = []

    def make(
        *limits: tuple[str, Algorithm], secrets: int = 1, own_clock: bool = False, **options: Any
    ) -> Gate:
        bound = tuple(
            PolicyLimit(f"l{at}", tuple(by.split()), algorithm, **options)
            for at, (by, algorithm) in enumerate(limits)
        )
        stores.append(ValkeyStore(valkey_url, deadline_ms=PATIENT_MS))
        all_secrets = (Pseudonyms(SECRET), Pseudonyms(SECRET[::-1]))
        return Gate(
            stores[-1],
            Policy("act", bound),
            None if own_clock else clock,
            all_secrets[:secrets],
        )

    yield make
    for each in stores:
        each.close()
