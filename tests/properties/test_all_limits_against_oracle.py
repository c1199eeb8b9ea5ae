"""
All algorithms together, and the one-time secrets: the Lua and the executable specification.

Both give the same replies in any order of verbs, under clocks that go on and step back, with one
secret or two; a refused attempt leaves no trace; every key has an expiry; and whatever happened, no
window of true time holds more than its limit, reckoned from the bare history. Overrides of one
account and the load change limits on the way.
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
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from authguard import Policy, PolicyLimit, SlidingLog
from authguard._core import calls
from authguard._core.attempt import Reservation
from authguard._core.keys import Shape, can_override, load_key, override_key, pardon_key
from authguard.identity import Pseudonyms
from authguard.limits import (
    Conversion,
    Cooldown,
    Distinct,
    FixedWindow,
    LeakyBucket,
    SlidingWindowCounter,
    TokenBucket,
    heeds_pardon,
)
from authguard.stores.memory import MemoryStore
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS, SECRET

if TYPE_CHECKING:
    import valkey

    from authguard._core.keys import Binding
    from authguard.limits import Algorithm
    from authguard.testing import EmbeddedValkey

START_MS = 1_800_000_000_000
SECRETS = Pseudonyms(SECRET), Pseudonyms(SECRET[::-1])
ACCOUNTS, CLIENTS = "abc", "xyz"

rates = st.builds("{}/{}s".format, st.integers(1, 4), st.integers(1, 4))
waits = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(
    lambda seconds: [f"{length}s" for length in sorted(seconds)]
)
algorithms: st.SearchStrategy[Algorithm] = st.one_of(
    st.builds(
        SlidingLog,
        rates,
        lockout=st.sampled_from([None, "2s", ["1s", "3s"]]),
        count_refused=st.sampled_from([False, False, True]),
    ),
    waits.map(lambda each: Cooldown(*each)),
    st.builds(FixedWindow, rates),
    # The day ends there at the moment with which each run begins.
    st.builds(FixedWindow, st.just("3/1d"), zone=st.just("America/Los_Angeles")),
    st.builds(SlidingWindowCounter, rates),
    st.builds(TokenBucket, rates, burst=st.integers(1, 5)),
    st.builds(LeakyBucket, rates, queue=st.integers(0, 4)),
    st.builds(FixedWindow, st.builds("{}/3s".format, st.integers(3, 5)), reserve=st.integers(0, 2)),
    st.builds(Distinct, st.just("account"), rates, forgive=st.sampled_from([None, True, False])),
    st.builds(
        Conversion,
        st.sampled_from(["1/1", "1/2", "2/2", "2/3", "3/3"]),
        lockout=st.sampled_from(["1s", "4s"]),
        life=st.sampled_from(["1s", "2s"]),
    ),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Draw a policy of one to five limits."""
    limits = []
    for at, algorithm in enumerate(draw(st.lists(algorithms, min_size=1, max_size=5))):
        parts = [("client",), ("global",)]
        if not isinstance(algorithm, Distinct):
            parts += [("account",), ("account", "client")]
        costs, most = [1, 1, 2], algorithm.largest_cost(reserved=True) or 1
        rigid = any(
            getattr(algorithm, name, None) for name in ("lockout_ms", "reserve", "count_refused")
        )
        elastic = algorithm.can_scale and not rigid and draw(st.booleans())
        limits.append(
            PolicyLimit(
                f"l{at}",
                draw(st.sampled_from(parts)),
                algorithm,
                cost=min(most, draw(st.sampled_from(costs))),
                elastic=elastic,
            )
        )
    return Policy("login", tuple(limits))


@dataclass(eq=False)
class Made:
    """An admitted attempt, as the history knows it."""

    reservation: Reservation
    reserved_at_ms: int
    account: str
    true_ms: int


@dataclass
class History:
    """What was admitted under one key, and not given back."""

    admitted: list[Made] = field(default_factory=list)


class Together(RuleBasedStateMachine):
    """Any order of all verbs, and of clocks that go on or step back."""

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
        self.histories: dict[str, History] = {}
        self.raised = False

    def teardown(self) -> None:
        """Let the connections go."""
        self.store.close()

    @initialize(policy=policies(), secrets=st.sampled_from([1, 1, 2]), device=st.booleans())
    def choose(self, policy: Policy, secrets: int, device: bool) -> None:
        """Choose the limits, and how many secrets name the keys."""
        known = {"account", "client", "global", "network"} | ({"device"} if device else set())
        self.secrets = SECRETS[:secrets]
        self.shape = Shape.of(
            policy, frozenset(known), secrets=secrets, blocks=True, overrides=True
        )

    def pseudonyms(self, account: str, client: str) -> list[dict[str, bytes]]:
        """Name the subjects under every secret."""
        values = {"account": account, "client": client, "network": client, "global": ""}
        return [
            {part: each.of(part, text) for part, text in values.items()} for each in self.secrets
        ]

    def bind(self, account: str, client: str) -> Binding:
        """Name the keys, as the guard does."""
        return self.shape.bind(*self.pseudonyms(account, client))

    def both(self, call: calls.ScriptCall[Any]) -> Any:
        """Ask both stores; the raw replies must be the same, and well-formed."""
        raw = self.store.run(call._replace(read=lambda reply: reply))
        assert raw == self.oracle.reply(call)
        return call.read(raw)

    def unwritten(self, call: calls.ScriptCall[Any]) -> Any:
        """Ask both stores what must write nothing."""
        before = self.dump()
        answer = self.both(call)
        assert self.dump() == before
        return answer

    def logs(self, binding: Binding) -> list[str]:
        """Name each limit's first key, under the newest secret."""
        changing = (self.shape.overrides + self.shape.elastic) * self.shape.secrets
        keys = [key for key in binding.keys[changing:] if not key.endswith(("!", "~"))]
        return keys[: len(self.shape.limits)]

    @rule(
        target=attempts,
        account=st.sampled_from(ACCOUNTS),
        client=st.sampled_from(CLIENTS),
        cost=st.sampled_from([1, 1, 1, 2]),
    )
    def attempt(self, account: str, client: str, cost: int) -> Any:
        """Attempt; an admitted one enters every limit's history, a refused one none."""
        binding = self.bind(account, client)
        for limit in self.shape.limits:
            most = limit.algorithm.largest_cost(reserved=self.shape.reserved)
            cost = min(cost, cost if most is None else most // limit.cost)
        self.serial += 1
        tag = SECRETS[0].of("client", client)[:3]
        attempt_id = tag + self.serial.to_bytes(2, "big")
        reservation = Reservation(binding, attempt_id, cost, knows_client=True)
        before = self.dump()
        decision = self.both(reservation.acquire(self.now_ms))
        if not decision.allowed:
            after = self.dump()
            written = {key for key in before | after if before.get(key) != after.get(key)}
            assert written <= self.may_change(binding)
            return multiple()
        made = Made(reservation, self.now_ms, account, self.true_ms)
        for key, limit in zip(self.logs(binding), self.shape.limits, strict=True):
            exempt = next(it.exempt for it in decision.verdicts if it.name == limit.name)
            if not exempt:
                history = self.histories.setdefault(key, History())
                history.admitted.append(made)
                self.check(limit, history)
        return made

    def may_change(self, binding: Binding) -> set[bytes]:
        """List the keys that a refused attempt may write: where refusals count, or time fell."""
        if self.now_ms < START_MS + self.true_ms:
            return {key.encode() for key in binding.keys + binding.block_keys}
        counting = any(
            isinstance(limit.algorithm, SlidingLog) and limit.algorithm.count_refused
            for limit in self.shape.limits
        )
        return {key.encode() for key in binding.keys} if counting else set()

    def check(self, limit: PolicyLimit, history: History) -> None:
        """Hold an algorithm to its promise, by the bare history; an override may have raised it."""
        if self.raised:
            return
        algorithm = limit.algorithm
        within = [
            made for made in history.admitted if self.true_ms - made.true_ms < algorithm.window_ms
        ]
        held = sum(made.reservation.cost * limit.cost for made in within)
        if isinstance(algorithm, TokenBucket | LeakyBucket):
            self.check_rate(limit, algorithm, history)
        elif isinstance(algorithm, Cooldown):
            assert len(within) <= 1
        elif isinstance(algorithm, Distinct):
            assert len({made.account for made in within}) <= algorithm.limit
        elif isinstance(algorithm, FixedWindow | SlidingWindowCounter):
            assert held <= 2 * algorithm.limit
        elif isinstance(algorithm, SlidingLog) and not algorithm.lockout_ms:
            assert held <= algorithm.limit

    def check_rate(
        self, limit: PolicyLimit, bucket: TokenBucket | LeakyBucket, history: History
    ) -> None:
        """In any time up to now there was what a bucket holds, and what its rate gave, not more."""
        held = 0
        for made in reversed(history.admitted):
            held += made.reservation.cost * limit.cost
            refilled = (self.true_ms - made.true_ms) * bucket.rate
            assert held * bucket.period_ms <= bucket.limit * bucket.period_ms + refilled

    @precondition(lambda self: self.shape.overrides)
    @rule(
        account=st.sampled_from(ACCOUNTS),
        at=st.integers(0, 4),
        factor=st.sampled_from([0, 1, 1, 3]),
        longer=st.sampled_from([1, 1, 2]),
        life_ms=st.sampled_from([0, 0, 1_000, 4_000]),
    )
    def override(self, account: str, at: int, factor: int, longer: int, life_ms: int) -> None:
        """Override one account's limit with the same or higher numbers, exempt it, or take back."""
        limits = [limit for limit in self.shape.limits if can_override(limit)]
        limit = limits[at % len(limits)]
        first, *rest = limit.algorithm.numbers()
        if isinstance(limit.algorithm, TokenBucket | LeakyBucket):
            rest[-1] *= longer  # logs and windows keep their period
        numbers = [] if factor == 0 else [first if factor == 1 else self.more(first), *rest]
        keys = tuple(
            override_key("login", named["account"])
            for named in self.pseudonyms(account, CLIENTS[0])
        )
        call = calls.override(keys, limit, numbers=numbers, life_ms=life_ms, now_ms=self.now_ms)
        ends_ms = self.both(call)
        if life_ms:
            assert ends_ms == self.now_ms + life_ms
            self.raised = self.raised or (factor, longer) != (1, 1)

    @staticmethod
    def more(first: Any) -> Any:
        """Give a higher limit, or other waits."""
        return [1_000, 4_000] if isinstance(first, list) else 3 * first

    @precondition(lambda self: self.shape.elastic)
    @rule(
        share=st.sampled_from([0, 1, 300, 500, 999, 1_000]), life_ms=st.sampled_from([1_000, 6_000])
    )
    def load(self, share: int, life_ms: int) -> None:
        """Say how much capacity there is; limits only get lower."""
        for each in self.secrets:
            call = calls.put(
                load_key(each.of("global", "")),
                share.to_bytes(2),
                life_ms=life_ms,
                now_ms=self.now_ms,
            )
            self.both(call)

    @rule(
        account=st.sampled_from(ACCOUNTS), client=st.sampled_from(CLIENTS), cost=st.integers(1, 6)
    )
    def peek(self, account: str, client: str, cost: int) -> None:
        """Peek: the same answer, and nothing is written."""
        binding = self.bind(account, client)
        call = calls.peek(binding, cost=cost, now_ms=self.now_ms)
        self.unwritten(call._replace(read=lambda reply: reply))

    @rule(
        account=st.sampled_from(ACCOUNTS), client=st.sampled_from(CLIENTS), cost=st.integers(1, 6)
    )
    def refuse(self, account: str, client: str, cost: int) -> None:
        """An attempt that another group of keys refuses: what counts refusals counts it."""
        binding = self.bind(account, client)
        call = calls.refuse(binding, cost=cost, now_ms=self.now_ms)
        self.both(call._replace(read=lambda reply: reply))

    @rule(account=st.sampled_from(ACCOUNTS), client=st.sampled_from(CLIENTS))
    def inspect(self, account: str, client: str) -> None:
        """Inspect: every limit and block is told of, and nothing is written."""
        usages = self.unwritten(calls.inspect(self.bind(account, client), now_ms=self.now_ms))
        assert [usage.name for usage in usages] == [
            limit.name for limit in self.shape.limits + self.shape.blocks
        ]

    @rule(
        made=consumes(attempts),
        into=st.sampled_from(["succeeded", "succeeded", "released"]),
    )
    def leave(self, made: Made, into: Any) -> None:
        """Succeed or release; the second time it changes nothing, but for a counter."""
        call = made.reservation.leave(into, reserved_at_ms=made.reserved_at_ms, now_ms=self.now_ms)
        assert call is not None
        self.both(call)
        counters = FixedWindow | SlidingWindowCounter | TokenBucket | Distinct
        if not any(isinstance(limit.algorithm, counters) for limit in self.shape.limits):
            again = self.unwritten(call)
            assert (again.entries, again.locks) == (0, 0)
        binding = made.reservation.binding
        for key, limit in zip(self.logs(binding), self.shape.limits, strict=True):
            history = self.histories.get(key, History())
            # A turn that a leaky bucket gave stays given.
            if made in history.admitted and not isinstance(limit.algorithm, LeakyBucket):
                self.give_back(limit.algorithm, history, made)

    def give_back(self, algorithm: Algorithm, history: History, made: Made) -> None:
        """Judge no further by what a limit may let go with an attempt."""
        earlier = history.admitted[: history.admitted.index(made)]
        if isinstance(algorithm, Distinct):
            # A value knows the times of its latest two attempts, not more.
            earlier = [other for other in earlier if other.account == made.account]
        elif not isinstance(algorithm, SlidingLog):
            earlier = []
        history.admitted = [it for it in history.admitted if it is not made and it not in earlier]

    @rule(
        account=st.sampled_from(ACCOUNTS),
        client=st.sampled_from(CLIENTS),
        verb=st.sampled_from([calls.clear, calls.recover]),
    )
    def empty(self, account: str, client: str, verb: Any) -> None:
        """Clear or recover: the logs are empty, and their locks have ended."""
        binding = self.bind(account, client)
        self.both(verb(binding, now_ms=self.now_ms))
        for key in self.logs(binding):
            self.histories.pop(key, None)

    @rule(account=st.sampled_from(ACCOUNTS))
    def pardon(self, account: str) -> None:
        """Pardon: the account's pairs with every client are open, and all else stays."""
        keys = tuple(
            pardon_key("login", pseudonyms["account"])
            for pseudonyms in self.pseudonyms(account, CLIENTS[0])
        )
        self.both(calls.pardon(keys, life_ms=60_000, now_ms=self.now_ms))
        for client in CLIENTS:
            binding = self.bind(account, client)
            for key, limit in zip(self.logs(binding), self.shape.limits, strict=True):
                if isinstance(limit.algorithm, SlidingLog) and heeds_pardon(limit.by):
                    self.histories.pop(key, None)

    @rule(
        by=st.sampled_from([("account",), ("client",), ("network",), ("account", "client")]),
        account=st.sampled_from(ACCOUNTS),
        client=st.sampled_from(CLIENTS),
        life_ms=st.sampled_from([None, 0, 1_000, 5_000]),
    )
    def block(self, by: tuple[str, ...], account: str, client: str, life_ms: int | None) -> None:
        """Set a block, or lift it: it refuses every attempt of whom it names."""
        shape = Shape.of_block(by, secrets=len(self.secrets))
        binding = shape.bind(*self.pseudonyms(account, client))
        if life_ms is None:
            self.both(calls.clear(binding, now_ms=self.now_ms))
        else:
            ends_ms = self.both(calls.set_block(binding, life_ms=life_ms, now_ms=self.now_ms))
            assert ends_ms == (self.now_ms + life_ms if life_ms else None)
        asked = calls.peek(self.bind(account, client), cost=1, now_ms=self.now_ms)
        decision = self.unwritten(asked._replace(read=asked.read))
        assert life_ms is None or "block" in decision.refused_by

    @rule(
        name=st.sampled_from("pq"),
        value=st.sampled_from([b"", b"\0" * 16 + b"p" * 32, b"q" * 32, b"short"]),
        life_ms=st.integers(1, 4_000),
    )
    def put(self, name: str, value: bytes, life_ms: int) -> None:
        """Store a secret."""
        self.both(calls.put(f"record:{name}", value, life_ms=life_ms, now_ms=self.now_ms))

    @rule()
    def read(self) -> None:
        """Read secrets: what is not there, or over, is None; nothing is written."""
        names = ("record:p", "record:q", "record:none")
        *_, none = self.unwritten(calls.read(names, now_ms=self.now_ms))
        assert none is None

    @rule(
        name=st.sampled_from("pq"),
        values=st.lists(st.sampled_from([b"p" * 32, b"q" * 32, b"p" * 48, b"q" * 16]), max_size=3),
    )
    def take(self, name: str, values: list[bytes]) -> None:
        """Take a secret: a second time it is not there."""
        call = calls.take(f"record:{name}", *values, now_ms=self.now_ms)
        if self.both(call):
            assert not self.both(call)

    @rule(names=st.lists(st.sampled_from("pqr"), unique=True, min_size=1))
    def drop(self, names: list[str]) -> None:
        """Take secrets away unasked."""
        # A store that has let a dead record go counts it no more.
        self.both(calls.drop(tuple(f"record:{name}" for name in names))._replace(read=lambda _: 0))

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

    @invariant()
    def no_key_lives_for_ever(self) -> None:
        """Every key has an expiry."""
        assert all(self.client.pttl(key) > 0 for key in self.client.scan_iter())

    def dump(self) -> dict[bytes, bytes]:
        """Give every key with its value."""
        return {key: self.client.get(key) for key in self.client.scan_iter()}


@pytest.mark.parametrize("examples", [60, pytest.param(3_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1_800)
def test_all_lua_agrees_with_the_specification(
    valkey_server: EmbeddedValkey, client: valkey.Valkey, examples: int
) -> None:
    """All algorithms and verbs: equal replies, no trace, no key for ever, no limit exceeded."""
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
