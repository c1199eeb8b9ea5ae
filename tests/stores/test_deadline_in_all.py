"""One deadline for all that a decision asks: many slow answers never add up to more."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from authguard import AsyncGuard, Denied, StoreUnavailable
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS, SECRET
from tests.servers import three_nodes
from tests.stores.wire import Wire, honest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard import Guard
    from authguard.testing import EmbeddedValkey
    from tests.servers import Cluster
    from tests.stores.wire import Step, Talk

    Guards = Callable[..., Guard]

DEADLINE_MS = 600
DEADLINE_S = DEADLINE_MS / 1_000
#: Of one answer, which is waited for if there is time; two take more than there is.
SLOW_S = 0.8 * DEADLINE_S
READ_MS = DEADLINE_MS
#: By then every decision has ended, however busy the machine; two answers take until 1.6.
ENDED_S = 1.45 * DEADLINE_S

WORN: dict[str, Any] = {
    "login": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "5/1h"},
            {"name": "client", "by": ["client"], "sliding_log": "20/1h"},
            {"name": "device", "by": ["device"], "sliding_log": "1/1h", "worn": True},
        ]
    }
}
KNOWN = {"account": "vera", "client": "192.0.2.7", "device": "a device"}


def slow(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Answer as the real server does, late."""
    yield SLOW_S
    yield from honest(talk, command)


@pytest.fixture
def wire(valkey_server: EmbeddedValkey, client: valkey.Valkey) -> Iterator[Wire]:
    """Stand between the guard and the session's server; quick until a test says otherwise."""
    with Wire(honest, valkey_server.port) as between:
        yield between


def ends_in_time(guard: Guard, action: str = "login", **named: Any) -> str:
    """Attempt, and hold the time against one deadline, with what a busy machine may add."""
    begun = time.monotonic()
    try:
        guard.attempt(action, **named)
        outcome = "admitted"
    except StoreUnavailable as error:
        outcome = error.reason
    took_s = time.monotonic() - begun
    assert took_s < ENDED_S
    return outcome


def hurried(wire: Wire) -> ValkeyStore:
    """Make a store with that deadline."""
    return ValkeyStore(wire.url, deadline_ms=DEADLINE_MS, read_ms=READ_MS)


def test_a_worn_device_is_asked_and_then_the_account(wire: Wire, guard_factory: Guards) -> None:
    """B060: the refusal of the device and the second look end by one deadline together."""
    guard = guard_factory(store=hurried(wire), policies=WORN, remember_refusals_ms=0)
    guard.attempt("login", **KNOWN)
    guard.attempt("login", **KNOWN)  # by the account: the device is worn out
    wire.commands.clear()
    wire.answer = slow
    assert ends_in_time(guard, **KNOWN) == "timeout"
    assert wire.verbs() == ["EVALSHA"] * 2


def test_a_script_that_is_not_cached(
    wire: Wire, client: valkey.Valkey, guard_factory: Guards
) -> None:
    """B060: EVALSHA, NOSCRIPT and the whole script share the deadline; it is sent once."""
    guard = guard_factory(store=hurried(wire), policies=WORN)
    client.script_flush()
    wire.answer = slow
    assert ends_in_time(guard, account="vera", client="192.0.2.7") == "timeout"
    assert wire.verbs() == ["EVALSHA", "EVAL"]


def test_one_slow_answer_is_no_outage(wire: Wire, guard_factory: Guards) -> None:
    """A single call that takes eight tenths of the deadline is waited for."""
    guard = guard_factory(store=hurried(wire), policies=WORN)
    guard.peek("login", account="vera", client="192.0.2.7")
    guard.attempt("login", account="omar", client="192.0.2.8")
    wire.answer = slow
    assert ends_in_time(guard, account="vera", client="192.0.2.7") == "admitted"


@pytest.mark.slow
def test_every_decision_has_its_own(wire: Wire, guard_factory: Guards) -> None:
    """Two decisions after each other have two deadlines: none eats of the next one's."""
    guard = guard_factory(store=hurried(wire), policies=WORN)
    guard.attempt("login", account="omar", client="192.0.2.8").succeed()
    wire.answer = slow
    attempt = guard.attempt("login", account="vera", client="192.0.2.7")
    attempt.succeed()
    assert attempt.settled


def test_what_the_app_looks_up_is_not_our_time(wire: Wire, guard_factory: Guards) -> None:
    """What ``resolve`` takes is not of the deadline: the store has all of it left."""

    def resolve(typed: str) -> str:
        time.sleep(DEADLINE_S / 2)
        return f"key of {typed}"

    guard = guard_factory(store=hurried(wire), policies=WORN, resolve=resolve)
    assert guard.attempt("login", account="vera", client="192.0.2.7").account == "key of vera"
    wire.answer = slow
    begun = time.monotonic()
    guard.attempt("login", account="vera", client="192.0.2.7")
    assert time.monotonic() - begun >= 1.3 * DEADLINE_S


def test_a_worn_devices_account_is_looked_up_in_time(wire: Wire, guard_factory: Guards) -> None:
    """A look-up that takes longer than the deadline keeps no owner of a worn-out device out."""

    def resolve(typed: str) -> str:
        time.sleep(0.33)
        return f"key of {typed}"

    store = ValkeyStore(wire.url, deadline_ms=300)
    guard = guard_factory(store=store, policies=WORN, resolve=resolve)
    for _ in range(2):
        assert guard.attempt("login", **KNOWN).account == "key of vera"


def test_a_slow_settle_ends_by_its_deadline(wire: Wire, guard_factory: Guards) -> None:
    """A success whose settle is not answered in time stands; the entry stays, in one deadline."""
    guard = guard_factory(store=hurried(wire), policies=WORN)
    attempt = guard.attempt("login", account="vera", client="192.0.2.7")

    def never(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield 3600.0

    wire.answer = never
    begun = time.monotonic()
    attempt.succeed()
    assert time.monotonic() - begun < ENDED_S
    assert attempt.succeeded
    assert not attempt.settled


def test_the_same_awaited(wire: Wire, client: valkey.Valkey) -> None:
    """AsyncGuard: the worn device's two calls, and NOSCRIPT's two, end by one deadline."""

    async def story() -> list[tuple[str, float]]:
        from authguard.stores.valkey_async import AsyncValkeyStore

        told = []
        store = AsyncValkeyStore(wire.url, deadline_ms=DEADLINE_MS, read_ms=READ_MS)
        async with AsyncGuard(store, secret=SECRET, policies=WORN, remember_refusals_ms=0) as guard:
            await guard.attempt("login", **KNOWN)
            await guard.attempt("login", **KNOWN)
            wire.answer = slow
            for flush in (False, True):
                if flush:
                    client.script_flush()
                begun = time.monotonic()
                try:
                    await guard.attempt("login", **KNOWN)
                except StoreUnavailable as error:
                    told.append((error.reason, time.monotonic() - begun))
        return told

    told = asyncio.run(story())
    assert [reason for reason, _ in told] == ["timeout"] * 2
    assert max(took_s for _, took_s in told) < ENDED_S


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Run three nodes."""
    with three_nodes() as nodes:
        yield nodes


@pytest.mark.slow
def test_two_groups_on_a_cluster(cluster: Cluster, guard_factory: Guards) -> None:
    """B060: two slow calls of one login end by one deadline; nobody is admitted on half of them."""
    with_three = {node.port: Wire(honest, node.port) for node in cluster.nodes}

    def through(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        """Relay, and name the wires instead of the nodes."""
        raw = talk.relay(command)
        for port, wire in with_three.items():
            raw = raw.replace(b":%d\r\n" % port, b":%d\r\n" % wire.port)
        yield raw

    def late(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield SLOW_S
        yield from through(talk, command)

    wires = list(with_three.values())
    for wire in wires:
        wire.answer = through
        wire.__enter__()
    try:
        store = ValkeyStore(
            f"valkey+cluster://127.0.0.1:{wires[0].port}", deadline_ms=DEADLINE_MS, read_ms=READ_MS
        )
        guard = guard_factory(store=store, policies=WORN)
        who = {"account": "vera", "client": "192.0.2.7"}
        guard.attempt("login", **who)
        for wire in wires:
            wire.answer = late
        assert ends_in_time(guard, **who) == "timeout"
        patient = guard_factory(store=cluster.url, policies=WORN, deadline_ms=PATIENT_MS)
        taken = {usage.name: usage.used for usage in patient.usage("login", **who)}
        # The second call may run after its deadline: charged, never admitted.
        assert taken["client"] == 2
        assert taken["account"] in {1, 2}
        for _ in range(5 - taken["account"]):
            patient.attempt("login", **who)
        with pytest.raises(Denied):
            patient.attempt("login", **who)
    finally:
        for wire in wires:
            wire.__exit__(None, None, None)
