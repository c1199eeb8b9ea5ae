"""
The Lua and the executable specification, driven together.

Two things are held: both give the same replies, always; and whatever happened, no window of true
time holds more admitted attempts than its limit (rule 8), reckoned from the bare history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from authguard import Policy, PolicyLimit, SlidingLog
from authguard._core import calls
from authguard._core.attempt import Reservation
from authguard._core.keys import Shape
from authguard.identity import Pseudonyms
from authguard.stores.memory import MemoryStore
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS, SECRET

if TYPE_CHECKING:
    import valkey

    from authguard._core.keys import Binding
    from authguard.testing import EmbeddedValkey

START_MS = 1_800_000_000_000
PSEUDONYMS = Pseudonyms(SECRET)

limits = st.builds(
    SlidingLog,
    st.builds("{}/{}s".format, st.integers(1, 5), st.integers(1, 4)),
    lockout=st.sampled_from([None, "1s", "3s", "6s", ["1s", "2s", "5s"], ["2s", "2s"]]),
    forgive=st.sampled_from([None, True, False]),
    count_refused=st.booleans(),
)
parts = st.sampled_from([("account",), ("client",), ("account", "client"), ("global",)])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Draw a policy of one to four limits."""
    drawn = draw(st.lists(st.tuples(parts, limits), min_size=1, max_size=4))
    return Policy(
        "login", tuple(PolicyLimit(f"l{i}", by, limit) for i, (by, limit) in enumerate(drawn))
    )


@dataclass(eq=False)
class Made:
    """An admitted attempt, as the history knows it."""

    reservation: Reservation
    reserved_at_ms: int
    account: str
    client: str
    true_ms: int
    back: set[int] = field(default_factory=set)  # limits (by place) that have given it back


@dataclass
class Log:
    """What the history knows of one log: who was admitted into it, and its lock."""

    admitted: list[Made] = field(default_factory=list)
    lock_by: Made | None = None


class Together(RuleBasedStateMachine):
    """Any order of attempts, successes, releases, clears, and clocks that go on or step back."""

    server: ClassVar[EmbeddedValkey]
    client: ClassVar[valkey.Valkey]

    attempts = Bundle("attempts")

    def __init__(self) -> None:
        super().__init__()
        self.client.flushall()
        self.store = ValkeyStore(self.server.url, deadline_ms=PATIENT_MS)
        self.oracle = MemoryStore(lambda: self.now_ms)
        self.now_ms = START_MS
        self.true_ms = 0
        self.serial = 0
        self.logs: dict[str, Log] = {}

    def teardown(self) -> None:
        """Let the connections go."""
        self.store.close()

    @initialize(policy=policies())
    def choose(self, policy: Policy) -> None:
        """Choose the limits."""
        self.shape = Shape.of(policy, frozenset({"account", "client", "global"}))

    def bind(self, account: str, client: str) -> Binding:
        """Name the keys, as the guard does."""
        values = {"account": account, "client": client, "global": ""}
        return self.shape.bind({part: PSEUDONYMS.of(part, text) for part, text in values.items()})

    def both(self, call: calls.ScriptCall[Any]) -> Any:
        """Ask both stores; the raw replies must be the same, and well-formed."""
        raw = self.store.run(call._replace(read=lambda reply: reply))
        assert raw == self.oracle.reply(call)
        return call.read(raw)

    def log_keys(self, binding: Binding) -> list[str]:
        """Name each limit's log."""
        return [key for key in binding.keys if not key.endswith(("!", "~"))]

    @rule(
        target=attempts,
        account=st.sampled_from("ab"),
        client=st.sampled_from("xyz"),
        cost=st.sampled_from([1, 1, 1, 2, 3]),
    )
    def attempt(self, account: str, client: str, cost: int) -> Made | None:
        """Attempt; an admitted one enters every log's history, a refused one none."""
        binding = self.bind(account, client)
        cost = min(cost, *(limit.algorithm.limit for limit in self.shape.limits))
        self.serial += 1
        tag = PSEUDONYMS.of("client", client)[:3]
        reservation = Reservation(
            binding, tag + self.serial.to_bytes(2, "big"), cost, knows_client=True
        )
        decision = self.both(reservation.acquire(self.now_ms))
        if not decision.allowed:
            return None
        made = Made(reservation, self.now_ms, account, client, self.true_ms)
        for place, (key, limit) in enumerate(
            zip(self.log_keys(binding), self.shape.limits, strict=True)
        ):
            log = self.logs.setdefault(key, Log())
            if log.lock_by is not None:  # it was admitted, so time has ended that lock
                log.admitted, log.lock_by = [], None
            log.admitted.append(made)
            if decision.verdicts[place].lock_set:
                log.lock_by = made
            inside = [
                other
                for other in log.admitted
                if place not in other.back
                and self.true_ms - other.true_ms < limit.algorithm.window_ms
            ]
            held = sum(other.reservation.cost for other in inside)
            assert held <= limit.algorithm.limit, f"{limit.name} over-admitted"
        return made

    @rule(account=st.sampled_from("ab"), client=st.sampled_from("xyz"), cost=st.integers(1, 6))
    def peek(self, account: str, client: str, cost: int) -> None:
        """Peek: the same answer, and nothing is written."""
        before = self.dump()
        call = calls.peek(self.bind(account, client), cost=cost, now_ms=self.now_ms)
        raw = self.store.run(call._replace(read=lambda reply: reply))
        assert raw == self.oracle.reply(call)
        assert self.dump() == before

    @rule(made=consumes(attempts), into=st.sampled_from(["succeeded", "succeeded", "released"]))
    def leave(self, made: Made | None, into: Any) -> None:
        """Succeed or release; the second time it changes nothing."""
        if made is None:
            return
        binding = made.reservation.binding
        locked = self.store.run(calls.peek(binding, cost=1, now_ms=self.now_ms)).verdicts
        call = made.reservation.leave(into, reserved_at_ms=made.reserved_at_ms, now_ms=self.now_ms)
        assert call is not None
        self.both(call)
        for place, (key, limit) in enumerate(
            zip(self.log_keys(binding), self.shape.limits, strict=True)
        ):
            log = self.logs.setdefault(key, Log())
            made.back.add(place)
            if into == "succeeded" and limit.algorithm.forgives(limit.by) and made in log.admitted:
                for other in log.admitted[: log.admitted.index(made)]:
                    if other.client == made.client:
                        other.back.add(place)
            if log.lock_by is made and locked[place].locked:
                log.lock_by = None
        before = self.dump()
        again = self.both(call)
        assert (again.entries, again.locks) == (0, 0)
        assert self.dump() == before

    @rule(account=st.sampled_from("ab"), client=st.sampled_from("xyz"))
    def clear(self, account: str, client: str) -> None:
        """Clear: the logs are empty, and their locks have ended."""
        binding = self.bind(account, client)
        self.both(calls.clear(binding, now_ms=self.now_ms))
        for key in self.log_keys(binding):
            self.logs.pop(key, None)

    @rule(
        ms=st.one_of(st.integers(0, 3), st.sampled_from([999, 1000, 1001]), st.integers(0, 9_000))
    )
    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.true_ms += ms

    @precondition(lambda self: self.now_ms > START_MS - 60_000)
    @rule(ms=st.integers(1, 20_000))
    def step_back(self, ms: int) -> None:
        """The store's clock steps back; true time does not."""
        self.now_ms -= ms

    def dump(self) -> dict[bytes, bytes]:
        """Give every key with its value."""
        return {key: self.client.get(key) for key in self.client.scan_iter()}


@pytest.mark.parametrize("examples", [60, pytest.param(3_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1_800)
def test_the_lua_agrees_with_the_specification_and_never_over_admits(
    valkey_server: EmbeddedValkey, client: valkey.Valkey, examples: int
) -> None:
    """Lua and oracle give the same replies, and no window of true time exceeds its limit."""
    Together.server, Together.client = valkey_server, client
    run_state_machine_as_test(
        Together,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
