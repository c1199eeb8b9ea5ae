"""
An attempt in one call, and the same in one call a group of keys: what may differ, and what not.

One random story is told to two guards: to a store that takes all keys in one call, and to one that
is asked as a cluster is. Both are the executable specification, so no server is needed.

Nothing may differ but what ``_core/groups.py`` says, and the marks of who made an entry. A place
that is taken and given back leaves a cooldown's, a distinct's and a lock's newest entry without the
name of the attempt that made it, so that attempt's own success later finds nothing there to forgive
(never the other way round). Stories with these settle at once; those without settle when they will.
A bucket drains at the rate that it is found with, from when it was last written, and a place that
is given back writes it: where the load or an override changes that rate, it is not compared. Nor is
a conversion, which remembers from the newest message on, sent or not.
An override that stood before a secret was added counts, on a cluster, under the old one alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from authguard import (
    ConfigurationError,
    Decision,
    Denied,
    Guard,
    InvalidInput,
    Policy,
    PolicyLimit,
    SlidingLog,
    StoreUnavailable,
    _guard_steps,
)
from authguard._guard_steps import GuardSteps
from authguard._subjects import Claims
from authguard.limits import (
    Conversion,
    Cooldown,
    Distinct,
    FixedWindow,
    LeakyBucket,
    SlidingWindowCounter,
    TokenBucket,
)
from authguard.stores.memory import MemoryStore
from tests.conftest import SECRET, Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Attempt
    from authguard._core.calls import ScriptCall
    from authguard._core.steps import Steps
    from authguard._guard_steps import Reserved
    from authguard.decision import Usage
    from authguard.limits import Algorithm

ACCOUNTS = "vera", "omar", "dora"
CLIENTS = "192.0.2.7", "192.0.2.8", "198.51.100.9"
DESTINATIONS = "vera@example.test", "+14155550101"
ACTION = "sign"

rates = st.builds("{}/{}s".format, st.integers(1, 4), st.integers(1, 5))
plain: st.SearchStrategy[Algorithm] = st.one_of(
    st.builds(SlidingLog, rates),
    st.builds(FixedWindow, rates),
    st.builds(FixedWindow, st.builds("{}/4s".format, st.integers(3, 5)), reserve=st.integers(0, 2)),
    st.builds(SlidingWindowCounter, rates),
    st.builds(TokenBucket, rates, burst=st.integers(1, 5)),
)
marked: st.SearchStrategy[Algorithm] = st.one_of(
    plain,
    st.builds(SlidingLog, rates, lockout=st.sampled_from(["2s", ["1s", "3s", "7s"]])),
    st.builds(SlidingLog, rates, count_refused=st.just(True)),
    st.sampled_from([("1s",), ("1s", "3s")]).map(lambda waits: Cooldown(*waits)),
    st.builds(Distinct, st.just("account"), rates, forgive=st.sampled_from([None, True, False])),
)
kept: st.SearchStrategy[Algorithm] = st.one_of(
    marked,
    st.builds(LeakyBucket, rates, queue=st.integers(0, 4)),
    st.builds(
        Conversion,
        st.sampled_from(["1/1", "1/2", "2/3"]),
        lockout=st.just("2s"),
        life=st.sampled_from(["1s", "2s"]),
    ),
)

PARTS = ("client",), ("network",), ("destination",), ("global",)


@st.composite
def limits(draw: st.DrawFn, algorithms: st.SearchStrategy[Algorithm]) -> tuple[PolicyLimit, ...]:
    """Draw two to six limits, over as many groups as it happens."""
    made = []
    for at, algorithm in enumerate(draw(st.lists(algorithms, min_size=2, max_size=6))):
        parts: list[tuple[str, ...]] = list(PARTS)
        if not isinstance(algorithm, Distinct):
            parts += [("account",), ("account",), ("account", "client")]
        if at and not isinstance(algorithm, Distinct | Conversion):
            parts.append(("device",))
        by = draw(st.sampled_from(parts))
        rigid = any(
            getattr(algorithm, name, None) for name in ("lockout_ms", "reserve", "count_refused")
        )
        most = algorithm.largest_cost(reserved=True) or 1
        worn = by == ("device",) and isinstance(algorithm, SlidingLog) and draw(st.booleans())
        recovery = (
            by == ("account",)
            and isinstance(algorithm, SlidingLog)
            and not rigid
            and draw(st.booleans())
        )
        made.append(
            PolicyLimit(
                f"l{at}",
                by,
                algorithm,
                cost=min(most, draw(st.sampled_from([1, 1, 1, 2]))),
                worn=worn,
                recovery=recovery,
                elastic=algorithm.can_scale
                and not (
                    rigid or worn or recovery or isinstance(algorithm, TokenBucket | LeakyBucket)
                )
                and draw(st.booleans()),
                ipv6_prefix=48 if by == ("network",) and draw(st.booleans()) else None,
            )
        )
    return tuple(made)


def ordered(decision: Decision) -> Decision:
    """Put the operators' blocks in one order: which is told first depends on the groups."""
    verdicts = decision.verdicts
    own = [verdict for verdict in verdicts if verdict.name != "block"]
    blocks = {verdict for verdict in verdicts if verdict.name == "block"}
    told = sorted(blocks, key=lambda verdict: verdict.retry_after_ms)
    return Decision(decision.action, decision.allowed, (*own, *told), decision.now_ms)


class Names:
    """Gives both guards the same names for their attempts."""

    def __init__(self) -> None:
        self.serial = 0

    def token_bytes(self, size: int) -> bytes:
        """Give the next."""
        self.serial += 1
        return self.serial.to_bytes(size, "big")


subjects = {
    "account": st.sampled_from(ACCOUNTS),
    "client": st.sampled_from(CLIENTS),
    "destination": st.sampled_from(DESTINATIONS),
    "device": st.sampled_from([None, None, "a device"]),
}


class Story(RuleBasedStateMachine):
    """What both machines know: a clock, a policy, and names for attempts."""

    names: ClassVar[Names]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.names.serial = 0

    def guard(self, chosen: tuple[PolicyLimit, ...], *, secrets: int, spread: bool) -> Guard:
        """Make a guard on a memory of its own."""
        return Guard(
            MemoryStore(self.clock, spread=spread),
            secret=[SECRET, SECRET[::-1]][:secrets],
            policies={ACTION: Policy(ACTION, chosen)},
            clock=self.clock,
        )


@dataclass(eq=False)
class Pair:
    """One admitted attempt, as both guards hold it."""

    whole: Attempt
    spread: Attempt


class Alike(Story):
    """One story told to two guards."""

    late: ClassVar[bool]

    pending = Bundle("pending")

    @initialize(data=st.data(), secrets=st.sampled_from([1, 1, 2]))
    def choose(self, data: st.DataObject, secrets: int) -> None:
        """Choose the limits, and how many secrets name the keys."""
        chosen = data.draw(limits(plain if self.late else marked))
        self.counts_refused = any(
            getattr(limit.algorithm, "count_refused", False) for limit in chosen
        )
        self.whole = self.guard(chosen, secrets=secrets, spread=False)
        self.spread = self.guard(chosen, secrets=secrets, spread=True)

    def both(self, ask: Callable[[Guard], Any]) -> tuple[Any, Any]:
        """Ask both under the same names; give what they return or raise."""
        answers: list[Any] = []
        serial = self.names.serial
        for guard in (self.whole, self.spread):
            self.names.serial = serial
            try:
                answer = ask(guard)
                answers.append(ordered(answer) if isinstance(answer, Decision) else answer)
            except (Denied, ConfigurationError, InvalidInput, ValueError) as error:
                answers.append(error)
        return answers[0], answers[1]

    def alike(self, ask: Callable[[Guard], Any]) -> Any:
        """Ask both; the answers must be the same. A millisecond passes: it may have emptied."""
        whole, spread = self.both(ask)
        if isinstance(whole, Exception):
            assert (type(whole), str(whole)) == (type(spread), str(spread))
        else:
            assert whole == spread
        self.clock.advance(1)
        return spread

    @rule(
        target=pending,
        cost=st.sampled_from([1, 1, 1, 2]),
        then=st.sampled_from(["nothing", "nothing", "succeed", "release", "later"]),
        **subjects,
    )
    def attempt(self, cost: int, then: str, **named: Any) -> Any:
        """Attempt: both admit, or both refuse by the same limits, for the same time, traceless."""
        before = self.seen(self.spread, **named)
        whole, spread = self.both(lambda guard: guard.attempt(ACTION, cost=cost, **named))
        assert type(whole) is type(spread)
        if isinstance(whole, Denied):
            self.refused_alike(whole.decision, spread.decision)
            if named["device"] is None and not self.counts_refused:
                # A worn device's attempt is two: the device's own refusal, and one without it.
                assert self.seen(self.spread, **named) == before
            self.stand_alike(**named)
        if isinstance(whole, Exception):
            return multiple()
        assert whole.decision == spread.decision
        assert (whole.account, whole.device) == (spread.account, spread.device)
        pair = Pair(whole, spread)
        if then == "later" and self.late:
            return pair
        if then in ("succeed", "release"):
            self.settle(pair, then)
        self.stand_alike(**named)
        return multiple()

    @rule(pair=consumes(pending), then=st.sampled_from(["succeed", "succeed", "release"]))
    def leave(self, pair: Pair, then: str) -> None:
        """Settle some time later: the same is given back, and a second time nothing is."""
        self.settle(pair, then)

    @rule(cost=st.integers(1, 5), **subjects)
    def peek(self, cost: int, **named: Any) -> None:
        """Peek: the same answer to the last figure."""
        self.alike(lambda guard: guard.peek(ACTION, cost=cost, **named))

    @rule(
        which=st.sampled_from(["account", "pair", "client", "destination", "nothing"]), **subjects
    )
    def clear(self, which: str, **named: Any) -> None:
        """Clear: as many entries and locks are freed."""
        parts = {"pair": ("account", "client"), "nothing": ()}.get(which, (which,))
        self.alike(lambda guard: guard.clear(ACTION, **{part: named[part] for part in parts}))

    @rule(recovered=st.booleans(), **subjects)
    def recover(self, recovered: bool, **named: Any) -> None:
        """Recover: the same is lifted."""
        who = {part: named[part] for part in ("account", "client")}
        self.alike(lambda guard: guard.recover(ACTION, recovered=recovered, **who))

    @rule(account=subjects["account"])
    def pardon(self, account: str) -> None:
        """Pardon: the pairs are open."""
        self.alike(lambda guard: guard.pardon(ACTION, account=account))

    @rule(
        which=st.sampled_from(["account", "pair", "client", "network"]),
        for_ms=st.sampled_from([None, 0, 1_000, 5_000]),
        account=subjects["account"],
        client=subjects["client"],
    )
    def block(self, which: str, for_ms: int | None, account: str, client: str) -> None:
        """Block whom an operator names, or lift it."""
        who = {
            "account": {"account": account},
            "pair": {"account": account, "client": client},
            "client": {"client": client},
            "network": {"network": client},
        }[which]
        if for_ms == 0:
            self.alike(lambda guard: guard.unblock(**who))
        else:
            self.alike(lambda guard: guard.block(**who, for_ms=for_ms))

    @rule(
        at=st.integers(0, 5),
        to=st.sampled_from([None, "1/2s", "6/2s", "6/4s"]),
        for_ms=st.sampled_from([0, 1_000, 9_000]),
        account=subjects["account"],
    )
    def override(self, at: int, to: str | None, for_ms: int, account: str) -> None:
        """Override a limit for one account, or take that back."""
        changed = self.whole.policies[ACTION].by_name.get(f"l{at}")
        if for_ms and changed is not None and isinstance(changed.algorithm, TokenBucket):
            to = None
        if for_ms:
            self.alike(
                lambda guard: guard.override(
                    ACTION, f"l{at}", account=account, to=to, for_ms=for_ms
                )
            )
        else:
            self.alike(lambda guard: guard.lift_override(ACTION, f"l{at}", account=account))

    @rule(share=st.sampled_from([0, 0.3, 0.5, 1]), for_ms=st.sampled_from([1_000, 6_000]))
    def load(self, share: float, for_ms: int) -> None:
        """Say how much capacity there is."""
        self.alike(lambda guard: guard.load(share, for_ms=for_ms))
        self.alike(lambda guard: guard.current_load())
        self.alike(lambda guard: guard.load_until_ms())

    @rule(ms=st.one_of(st.integers(0, 3), st.sampled_from([999, 1_000, 1_001, 4_000, 9_000])))
    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)

    def settle(self, pair: Pair, then: str) -> None:
        """Give back in both."""
        for attempt in (pair.whole, pair.spread):
            getattr(attempt, then)()
            getattr(attempt, then)()
        assert pair.whole.settled is pair.spread.settled is True
        assert pair.whole.unlocked == pair.spread.unlocked

    def refused_alike(self, whole: Decision, spread: Decision) -> None:
        """Compare two refusals: but for when what admits would be empty, all must be the same."""
        by_name = {limit.name: limit for limit in self.whole.policies[ACTION].limits}

        def shown(decision: Decision) -> list[Any]:
            rows = []
            for verdict in ordered(decision).verdicts:
                given_back = not verdict.refuses
                row = verdict._replace(reset_after_ms=0) if given_back else verdict
                limit = by_name.get(verdict.name)
                if given_back and limit is not None and isinstance(limit.algorithm, Distinct):
                    row = row._replace(remaining=0)  # it is not known whether a place was taken
                rows.append(row)
            return rows

        assert shown(whole) == shown(spread)
        assert whole.retry_after_ms == spread.retry_after_ms
        assert set(whole.refused_by) == set(spread.refused_by)
        assert whole.shed == spread.shed

    @staticmethod
    def seen(guard: Guard, **named: Any) -> list[Any]:
        """Look at all that stands for somebody, but for the mark of a lock that is over."""
        usages: tuple[Usage, ...] = guard.usage(
            ACTION, **{part: named[part] for part in ("account", "client", "destination")}
        )
        shown: list[Any] = [
            usage if usage.locked_until_ms or usage.endless else usage._replace(lock_set_at_ms=None)
            for usage in usages
        ]
        return [*shown, ordered(guard.peek(ACTION, **named))]

    def stand_alike(self, **named: Any) -> None:
        """Hold what stands for somebody in one against the other."""
        each = zip(self.seen(self.whole, **named), self.seen(self.spread, **named), strict=True)
        for whole, spread in each:
            assert whole == spread, f"{whole}\n{spread}"

    def teardown(self) -> None:
        """Hold all that stands in one against the other."""
        if hasattr(self, "whole"):
            for account, client in zip(ACCOUNTS, CLIENTS, strict=True):
                named = {"account": account, "client": client, "destination": DESTINATIONS[0]}
                self.stand_alike(**named, device=None)


@dataclass(eq=False)
class Under:
    """An attempt under way: its steps, the call that is next, and whom it is about."""

    steps: Steps[Reserved]
    call: ScriptCall[Any]
    named: dict[str, Any]
    cost: int


@dataclass(eq=False)
class Held:
    """An attempt that was admitted, and is still counted."""

    reserved: Reserved
    named: dict[str, Any]
    cost: int
    at_ms: int
    true_ms: int


class Interleaved(Story):
    """
    Attempts whose calls come in any order, whose answers are lost, under a clock that steps back.

    No window may hold more than its limit, reckoned from the bare list of who was admitted.
    """

    @initialize(chosen=limits(kept), secrets=st.sampled_from([1, 1, 2]))
    def choose(self, chosen: tuple[PolicyLimit, ...], secrets: int) -> None:
        """Choose the limits."""
        self.one = self.guard(chosen, secrets=secrets, spread=True)
        self.limits = chosen
        self.true_ms = 0
        self.under: list[Under] = []
        self.held: list[Held] = []

    @rule(cost=st.sampled_from([1, 1, 2]), **subjects)
    def begin(self, cost: int, **named: Any) -> None:
        """Begin an attempt; nothing of it has run."""
        steps = GuardSteps._attempt(self.one, ACTION, cost=cost, **named)
        try:
            self.under.append(Under(steps, next(steps), named, cost))
        except (ConfigurationError, ValueError):
            return

    @rule(which=st.integers(0, 20), outcome=st.sampled_from(["runs"] * 6 + ["lost before", "lost"]))
    def go_on(self, which: int, outcome: str) -> None:
        """Run one call of one attempt, or lose it, or its answer."""
        if not self.under:
            return
        it = self.under[which % len(self.under)]
        try:
            if outcome == "runs":
                it.call = it.steps.send(self.one.store.run(it.call))
            else:
                if outcome == "lost":
                    self.one.store.run(it.call)
                it.call = it.steps.throw(StoreUnavailable("timeout"))
        except StopIteration as end:
            self.under.remove(it)
            self.admit(it, end.value)
        except (Denied, StoreUnavailable, ValueError):
            self.under.remove(it)

    def admit(self, it: Under, reserved: Reserved) -> None:
        """Write it into the history; no window may hold more than its limit."""
        if reserved.device is None:
            it.named["device"] = None
        self.held.append(Held(reserved, it.named, it.cost, reserved.decision.now_ms, self.true_ms))
        names = {verdict.name for verdict in reserved.decision.verdicts}
        for limit in self.limits:
            if limit.name in names and self.counts_exactly(limit.algorithm):
                self.check(limit, it.named)

    @staticmethod
    def counts_exactly(algorithm: Algorithm) -> bool:
        """Tell whether the bare history says all: not where counters or locks begin afresh."""
        return isinstance(algorithm, Cooldown | Distinct) or (
            isinstance(algorithm, SlidingLog) and not algorithm.lockout_ms
        )

    def check(self, limit: PolicyLimit, named: dict[str, Any]) -> None:
        """Hold one limit to its promise for whom it has just admitted."""
        key = self.key_of(limit, named)
        within = [
            held
            for held in self.held
            if self.true_ms - held.true_ms < limit.algorithm.window_ms
            and limit.name in {verdict.name for verdict in held.reserved.decision.verdicts}
            and self.key_of(limit, held.named) == key
        ]
        if isinstance(limit.algorithm, Cooldown):
            assert len(within) <= 1
        elif isinstance(limit.algorithm, Distinct):
            assert len({held.named["account"] for held in within}) <= limit.algorithm.limit
        else:
            assert sum(held.cost * limit.cost for held in within) <= limit.algorithm.limit

    def key_of(self, limit: PolicyLimit, named: dict[str, Any]) -> tuple[Any, ...]:
        """Name whom a limit counts, by the pseudonyms of the newest secret."""
        known = self.one._subjects.known(
            self.one.policy(ACTION), Claims(**named), partial=True
        ).pseudonyms[0]
        return tuple(known[subject] for subject in limit.subjects)

    @rule(which=st.integers(0, 20), into=st.sampled_from(["succeeded", "released"]))
    def leave(self, which: int, into: Any) -> None:
        """Succeed or release: those it takes back are judged no further."""
        if not self.held:
            return
        held = self.held[which % len(self.held)]
        steps = held.reserved.places.leave(into, self.clock())
        try:
            call = next(steps)
            while True:
                call = steps.send(self.one.store.run(call))
        except StopIteration:
            pass
        self.held = [
            it
            for it in self.held
            if it is not held
            and not (into == "succeeded" and it.named["client"] == held.named["client"])
        ]

    @rule(ms=st.one_of(st.integers(0, 3), st.sampled_from([999, 1_000, 1_001, 4_000])))
    def advance(self, ms: int) -> None:
        """Let time pass; not within an attempt, whose calls all bear the time of its beginning."""
        if not self.under:
            self.clock.advance(ms)
            self.true_ms += ms

    @rule(ms=st.integers(1, 5_000))
    def step_back(self, ms: int) -> None:
        """The clock steps back; true time does not."""
        if not self.under:
            self.clock.advance(-ms)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Let attempts have names that are the same in both guards."""
    given = Names()
    monkeypatch.setattr(_guard_steps, "os", SimpleNamespace(urandom=given.token_bytes))
    return given


def _run(machine: type[Story], examples: int, steps: int = 25) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("examples", [20, pytest.param(1_500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("late", [True, False], ids=["settled late", "settled at once"])
@pytest.mark.timeout(1_800)
def test_group_by_group_is_as_all_at_once(names: Names, late: bool, examples: int) -> None:
    """B119: who is refused, by what and how long is the same, and a refusal leaves no trace."""
    _run(type("Told", (Alike,), {"late": late, "names": names}), examples)


@pytest.mark.parametrize("examples", [20, pytest.param(1_500, marks=pytest.mark.slow)])
@pytest.mark.timeout(1_800)
def test_interleaved_groups_never_admit_too_many(names: Names, examples: int) -> None:
    """Whatever runs between two groups' calls, or is lost there, no limit holds too many."""
    _run(type("Told", (Interleaved,), {"names": names}), examples, 40)


def _both(*limits: PolicyLimit, secrets: list[str], clock: Clock) -> tuple[Guard, Guard]:
    """Give two guards, the second asked group by group."""
    whole, spread = (
        Guard(
            MemoryStore(clock, spread=spread),
            secret=secrets,
            policies={ACTION: Policy(ACTION, limits)},
            clock=clock,
        )
        for spread in (False, True)
    )
    return whole, spread


def _admitted(guard: Guard, times: int, **named: Any) -> int:
    """Attempt several times; tell how many were admitted."""
    admitted = 0
    for _ in range(times):
        try:
            guard.attempt(ACTION, **named)
        except Denied:
            continue
        admitted += 1
    return admitted


VERA = {"account": "vera", "client": CLIENTS[0]}


@pytest.mark.parametrize(("to", "whole", "spread"), [("7/1h", 7, 2), (None, 9, 2), ("1/1h", 1, 1)])
def test_an_override_from_before_a_new_secret_is_heeded_by_the_old_logs(
    clock: Clock, to: str | None, whole: int, spread: int
) -> None:
    """Group by group, a secret's log heeds its own secret's override: never looser than all."""
    limits_ = (
        PolicyLimit("account", ("account",), SlidingLog("2/1h")),
        PolicyLimit("client", ("client",), SlidingLog("99/1h")),
    )
    found = []
    for before, spreads in zip(_both(*limits_, secrets=[SECRET], clock=clock), (0, 1), strict=True):
        before.override(ACTION, "account", account="vera", to=to, for_ms=9_000_000)
        after = _both(*limits_, secrets=[SECRET[::-1], SECRET], clock=clock)[spreads]
        after._engine.store.__dict__.update(vars(before.store))
        found.append(_admitted(after, 9, **VERA))
        after.clear(ACTION, account="vera")
        clock.advance(1)
        after.override(ACTION, "account", account="vera", to="4/1h", for_ms=9_000_000)
        assert _admitted(after, 9, **VERA) == 4
    assert found == [whole, spread]


def test_a_refused_attempt_counts_where_refusals_do(clock: Clock) -> None:
    """``count_refused``: groups before the one that refuses, and after it, count as one server."""
    first = (
        PolicyLimit("client", ("client",), SlidingLog("9/1h", count_refused=True)),
        PolicyLimit("account", ("account",), SlidingLog("2/1h")),
    )
    last = (
        PolicyLimit("client", ("client",), SlidingLog("2/1h")),
        PolicyLimit("account", ("account",), SlidingLog("9/1h", count_refused=True)),
    )
    used = []
    for limits_, counting in ((first, "client"), (last, "account")):
        for guard in _both(*limits_, secrets=[SECRET], clock=clock):
            assert _admitted(guard, 5, **VERA) == 2
            usages = {usage.name: usage.used for usage in guard.usage(ACTION, **VERA)}
            used.append(usages[counting])
    assert used == [5, 5, 5, 5]


def test_a_place_that_is_given_back_calls_for_no_recovery(clock: Clock) -> None:
    """The last place of a month, taken and given back: nobody is told that it is full."""
    limits_ = (
        PolicyLimit("month", ("account",), SlidingLog("1/30d"), recovery=True),
        PolicyLimit("where", ("destination",), SlidingLog("1/1h")),
    )
    for guard in _both(*limits_, secrets=[SECRET], clock=clock):
        guard.attempt(ACTION, account="omar", client=CLIENTS[0], destination=DESTINATIONS[0])
        with pytest.raises(Denied) as refused:
            guard.attempt(ACTION, **VERA, destination=DESTINATIONS[0])
        month = refused.value.decision.verdicts[0]
        assert (month.remaining, month.recovery, month.refuses) == (1, False, False)
