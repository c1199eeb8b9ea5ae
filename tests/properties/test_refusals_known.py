"""
Refusals known already, beside a guard that asks each time: never one more, never one too long.

Whatever limits a policy has and whatever happens, by real time: just before each attempt of a
guard that remembers refusals, one that doesn't looks at the same store. Where that would be
admitted, the attempt is not refused from memory; and an admitted one has always asked.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from authguard import Denied, Guard, Policy, PolicyLimit, SlidingLog
from authguard._core.keys import can_override
from authguard.limits import (
    Cooldown,
    Distinct,
    FixedWindow,
    LeakyBucket,
    SlidingWindowCounter,
    TokenBucket,
)
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS, SECRET

if TYPE_CHECKING:
    import valkey

    from authguard import Attempt, Decision
    from authguard._core.calls import ScriptCall
    from authguard.limits import Algorithm
    from authguard.testing import EmbeddedValkey

ACCOUNTS: Final = ("vera", "omar")
CLIENTS: Final = ("192.0.2.7", "203.0.113.9")
OTHER_SECRET: Final = SECRET[::-1]

rates = st.builds("{}/{}s".format, st.integers(1, 3), st.just(1))
algorithms: st.SearchStrategy[Algorithm] = st.one_of(
    st.builds(SlidingLog, rates),
    st.builds(SlidingLog, st.just("2/3s"), lockout=st.sampled_from(["1s", ["1s", "2s"]])),
    st.builds(SlidingLog, rates, count_refused=st.just(True)),
    st.builds(FixedWindow, rates),
    st.builds(FixedWindow, st.just("3/1s"), reserve=st.integers(1, 2)),
    st.builds(SlidingWindowCounter, rates),
    st.builds(TokenBucket, st.sampled_from(["3/1s", "7/2s"]), burst=st.integers(1, 3)),
    st.builds(LeakyBucket, st.sampled_from(["3/1s", "7/2s"]), queue=st.integers(0, 2)),
    st.just(Cooldown("1s")),
    st.builds(Distinct, st.just("account"), rates),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Draw a policy of one to three limits."""
    limits = []
    for at, algorithm in enumerate(draw(st.lists(algorithms, min_size=1, max_size=3))):
        by: list[tuple[str, ...]] = [("client",), ("global",)]
        if not isinstance(algorithm, Distinct):
            by += [("account",), ("account", "client"), ("device",)]
        plain = not any(
            getattr(algorithm, name, None) for name in ("lockout_ms", "reserve", "count_refused")
        )
        elastic = algorithm.can_scale and plain and draw(st.booleans())
        tiers: dict[str, Algorithm] = {}
        if isinstance(algorithm, FixedWindow | TokenBucket) and plain and draw(st.booleans()):
            text = "4/1s" if isinstance(algorithm, FixedWindow) else "9/2s"
            tiers["pro"] = algorithm._like(text, "tiers")
        limits.append(
            PolicyLimit(
                f"l{at}",
                draw(st.sampled_from(by)),
                algorithm,
                elastic=elastic,
                tiers=tiers,
                priority=draw(st.sampled_from([None, None, None, "high"])),
            )
        )
    everybody = PolicyLimit("all", ("global",), FixedWindow("1000/1d"))
    return Policy("login", (*limits, everybody))


class Counting(ValkeyStore):
    """The store, with its calls counted."""

    calls = 0

    def run(self, call: ScriptCall[Any]) -> Any:
        """Run it."""
        self.calls += 1
        return super().run(call)


asking = st.fixed_dictionaries(
    {"account": st.sampled_from(ACCOUNTS), "client": st.sampled_from(CLIENTS)},
    optional={
        "device": st.just("a device"),
        "cost": st.just(2),
        "priority": st.just("high"),
        "tier": st.just("pro"),
    },
)


class Beside(RuleBasedStateMachine):
    """A guard that remembers, and one that never does; operators are either."""

    server: ClassVar[EmbeddedValkey]
    client: ClassVar[valkey.Valkey]

    @initialize(policy=policies(), secrets=st.sampled_from([SECRET, [SECRET, OTHER_SECRET]]))
    def start(self, policy: Policy, secrets: str | list[str]) -> None:
        """Begin with an empty store."""
        self.client.flushall()
        self.store = Counting(self.server.url, deadline_ms=PATIENT_MS)
        usual: dict[str, Any] = {"secret": secrets, "policies": {"login": policy}}
        self.knowing = Guard(self.store, **usual)
        self.asking = Guard(
            self.server.url, deadline_ms=PATIENT_MS, remember_refusals_ms=0, **usual
        )
        self.policy = policy
        self.pending: list[Attempt] = []
        self.repeats = 0

    def teardown(self) -> None:
        """Let the connections go."""
        if hasattr(self, "knowing"):
            self.knowing.close()
            self.asking.close()

    def _attempt(self, asked: dict[str, Any]) -> None:
        asked = {
            part: value
            for part, value in asked.items()
            if (part != "tier" or self.policy.tiers)
            and (part != "priority" or self.policy.priorities)
        }
        try:
            before = self.asking.peek("login", **asked)
        except ValueError:  # it costs more than a limit could admit
            return
        calls = self.store.calls
        decision: Decision
        try:
            attempt = self.knowing.attempt("login", **asked)
        except Denied as error:
            decision = error.decision
        except ValueError:
            return
        else:
            assert self.store.calls == calls + 1
            self.pending.append(attempt)
            return
        if self.store.calls > calls:
            return
        self.repeats += 1
        assert not before.allowed, (asked, before, decision)
        lasting = {each.name for each in decision.verdicts if each.refuses and not each.shed}
        assert lasting.issubset(before.refused_by), (asked, before, decision)
        assert not any(each.lock_set for each in decision.verdicts)
        assert decision.retry_after_ms > 0

    @rule(asked=asking, times=st.integers(1, 6))
    def ask(self, asked: dict[str, Any], times: int) -> None:
        """Attempt the same several times."""
        for _ in range(times):
            self._attempt(asked)

    @rule(each=st.lists(asking, min_size=2, max_size=6))
    def ask_several(self, each: list[dict[str, Any]]) -> None:
        """Attempt different things."""
        for asked in each:
            self._attempt(asked)

    @rule(asked=asking, until_ms=st.integers(50, 1_100))
    def hammer(self, asked: dict[str, Any], until_ms: int) -> None:
        """Attempt the same all the time."""
        end_s = time.monotonic() + until_ms / 1000
        while time.monotonic() < end_s:
            self._attempt(asked)

    @rule(ms=st.integers(1, 400))
    def wait(self, ms: int) -> None:
        """Let time pass."""
        time.sleep(ms / 1000)

    @precondition(lambda self: self.pending)
    @rule(at=st.integers(0, 100), succeeds=st.booleans())
    def leave(self, at: int, succeeds: bool) -> None:
        """Give a place back."""
        attempt = self.pending.pop(at % len(self.pending))
        (attempt.succeed if succeeds else attempt.release)()

    @rule(mine=st.booleans(), share=st.sampled_from([0, 0.3, 1]), for_ms=st.integers(1, 400))
    def load(self, mine: bool, share: float, for_ms: int) -> None:
        """Say the load."""
        self._operator(mine).load(share, for_ms=for_ms)

    @rule(
        mine=st.booleans(),
        account=st.sampled_from(ACCOUNTS),
        how=st.sampled_from(["same", "exempt", "lift"]),
        at=st.integers(0, 2),
        for_ms=st.integers(1, 400),
    )
    def override(self, mine: bool, account: str, how: str, at: int, for_ms: int) -> None:
        """Change a limit for an account, for a moment; or no more."""
        limit = self.policy.limits[at % len(self.policy.limits)]
        if not can_override(limit):
            return
        guard = self._operator(mine)
        if how == "lift":
            guard.lift_override("login", limit.name, account=account)
        elif how == "exempt":
            guard.override("login", limit.name, account=account, to=None, for_ms=for_ms)
        else:
            guard.override("login", limit.name, account=account, to=limit.algorithm, for_ms=for_ms)

    @rule(
        mine=st.booleans(),
        account=st.sampled_from(ACCOUNTS),
        client=st.sampled_from([*CLIENTS, None]),
        how=st.sampled_from(["clear", "recover", "pardon"]),
    )
    def unlock(self, mine: bool, account: str, client: str | None, how: str) -> None:
        """Empty what counts by an account."""
        guard = self._operator(mine)
        try:
            if how == "pardon":
                guard.pardon("login", account=account)
            elif how == "clear":
                guard.clear("login", account=account, client=client)
            else:
                guard.recover("login", account=account, client=client, recovered=True)
        except ValueError:  # no limit counts by it
            return

    @rule(
        mine=st.booleans(),
        client=st.sampled_from(CLIENTS),
        for_ms=st.sampled_from([None, 30, 300]),
        lifts=st.booleans(),
    )
    def block(self, mine: bool, client: str, for_ms: int | None, lifts: bool) -> None:
        """Block a client, or lift its block."""
        guard = self._operator(mine)
        if lifts:
            guard.unblock(client=client)
        else:
            guard.block(client=client, for_ms=for_ms)

    def _operator(self, mine: bool) -> Guard:
        return self.knowing if mine else self.asking


def _run(
    valkey_server: EmbeddedValkey, client: valkey.Valkey, *, examples: int, steps: int
) -> None:
    machine = type("Machine", (Beside,), {"server": valkey_server, "client": client})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_refusal_from_memory_is_one_too_many(
    valkey_server: EmbeddedValkey, client: valkey.Valkey
) -> None:
    """Over limits of all kinds, costs, tiers, devices, loads, overrides, unlocks: a few stories."""
    _run(valkey_server, client, examples=4, steps=8)


@pytest.mark.slow
def test_no_refusal_from_memory_is_one_too_many_at_length(
    valkey_server: EmbeddedValkey, client: valkey.Valkey
) -> None:
    """The same in forty stories of up to 20 steps."""
    _run(valkey_server, client, examples=40, steps=20)
