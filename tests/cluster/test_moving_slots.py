"""
A slot moves to another node, key by key: what is asked meanwhile is answered, or 503; never twice.

While a move is open, a call whose keys are not all in one place is answered TRYAGAIN by both ends,
and most of ours name keys that are nowhere yet (a lock, a block): for as long as that lasts the
slot's accounts are 503, and all others go on.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from authguard import AsyncGuard, Attempt, Denied, StoreUnavailable
from authguard._core import calls
from tests.cluster.conftest import POLICY, errors, forget_counts
from tests.conftest import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard
    from tests.cluster.conftest import Map
    from tests.servers import Node

    Guards = Callable[..., Guard]

pytestmark = pytest.mark.slow

CLIENT = "192.0.2.7"
HURRIED_MS = 150
#: For one answer by that deadline, on a busy machine.
SANE_S = 1.0


@pytest.fixture
def move(where: Map) -> tuple[int, Node, Node]:
    """Give bob's slot, its node, and the node it is going to."""
    slot = where.slots("bob", CLIENT)[1]
    source = where.cluster.owner(slot)
    return slot, source, next(node for node in where.cluster.nodes if node is not source)


def tried(guard: Guard, account: str = "bob", client: str = CLIENT) -> str:
    """Attempt once; give the outcome in a word."""
    try:
        guard.attempt("login", account=account, client=client)
    except Denied as error:
        return " and ".join(error.decision.refused_by)
    except StoreUnavailable as error:
        return error.reason
    return "admitted"


def test_a_slot_that_has_moved_is_followed_at_once(
    where: Map, move: tuple[int, Node, Node]
) -> None:
    """MOVED: the very next attempt is decided by the new node, counted once, with all before it."""
    slot, _, to = move
    assert [tried(where.guard) for _ in range(3)] == ["admitted"] * 3
    where.cluster.begin_move(slot, to)
    assert where.cluster.move_keys(slot, to) == 1
    where.cluster.end_move(slot, to)
    forget_counts(where.cluster)
    assert tried(where.guard) == "admitted"
    assert errors(where.cluster)["MOVED"] == 1
    assert where.used("account", account="bob", client=CLIENT) == 4
    assert [tried(where.guard) for _ in range(2)] == ["admitted", "account"]
    assert errors(where.cluster)["MOVED"] == 1  # the map has been read again


def test_an_open_move_admits_nobody_too_often(
    where: Map, guard_factory: Guards, move: tuple[int, Node, Node]
) -> None:
    """ASK, TRYAGAIN: admitted and counted once, or 503 by the deadline; nothing is lost or over."""
    slot, _, to = move
    hurried = guard_factory(deadline_ms=HURRIED_MS)
    outcomes = [tried(hurried) for _ in range(2)]
    assert outcomes == ["admitted"] * 2
    others = [f"user{number}" for number in range(30)]
    others = [name for name in others if where.slots(name, CLIENT)[1] != slot][:10]

    begun = time.monotonic()
    where.cluster.begin_move(slot, to)
    outcomes += [tried(hurried) for _ in range(3)]
    assert where.cluster.move_keys(slot, to) == 1
    outcomes += [tried(hurried) for _ in range(3)]
    took_s = time.monotonic() - begun
    assert set(outcomes[2:]) <= {"admitted", "slot moving"}
    assert took_s < 6 * SANE_S
    assert [tried(hurried, name, "192.0.2.8") for name in others] == ["admitted"] * len(others)

    where.cluster.end_move(slot, to)
    admitted = outcomes.count("admitted")
    assert where.used("account", account="bob", client=CLIENT) == admitted
    # The wait leaves time to give the client's place back; a busy machine may take it.
    assert admitted <= where.used("client", account="bob", client=CLIENT) <= admitted + 1
    left = [tried(hurried) for _ in range(5 - admitted + 1)]
    assert left == ["admitted"] * (5 - admitted) + ["account"]


def test_a_move_in_the_middle_of_an_attempt(
    where: Map, guard_factory: Guards, move: tuple[int, Node, Node]
) -> None:
    """TRYAGAIN, then MOVED: an attempt that has time waits for the move's end, and counts once."""
    slot, _, to = move
    patient = guard_factory(deadline_ms=10_000)
    assert tried(patient) == "admitted"
    where.cluster.begin_move(slot, to)
    forget_counts(where.cluster)
    done: list[str] = []
    threads = [threading.Thread(target=lambda: done.append(tried(patient))) for _ in range(8)]
    for thread in threads:
        thread.start()
    last = time.monotonic() + 10
    while errors(where.cluster)["TRYAGAIN"] < 8:
        assert time.monotonic() < last
    where.cluster.move_keys(slot, to)
    where.cluster.end_move(slot, to)
    for thread in threads:
        thread.join()
    assert sorted(done) == ["account"] * 4 + ["admitted"] * 4
    assert where.used("account", account="bob", client=CLIENT) == 5
    assert where.used("client", account="bob", client=CLIENT) == 5


def test_one_key_that_has_gone_ahead_is_asked_there(
    where: Map, guard_factory: Guards, move: tuple[int, Node, Node]
) -> None:
    """ASK: a call with one key follows it to the importing node, by ASKING on one connection."""
    slot, _, to = move
    guard = guard_factory()
    tag = where.groups("bob", CLIENT)[1][0].partition("{")[2].partition("}")[0]
    key = f"rl:v1:{{{tag}}}{'x' * 22}"
    assert where.cluster.slot_of(key) == slot

    def read() -> bytes | None:
        (value,) = guard.store.run(calls.read((key,), now_ms=None))
        return value

    guard.store.run(calls.put(key, b"v" * 40, life_ms=60_000, now_ms=None))
    where.cluster.begin_move(slot, to)
    assert read() == b"v" * 40
    where.cluster.move_keys(slot, to)
    forget_counts(where.cluster)
    assert read() == b"v" * 40
    assert errors(where.cluster)["ASK"] == 1
    assert guard.store.run(calls.take(key, b"v" * 32, now_ms=None))
    assert not guard.store.run(calls.take(key, b"v" * 32, now_ms=None))
    where.cluster.end_move(slot, to)
    assert read() is None


def test_a_move_awaited(where: Map, move: tuple[int, Node, Node]) -> None:
    """AsyncGuard: 503 "slot moving" by the deadline while a move is open, right again after it."""
    slot, _, to = move

    async def story() -> list[str]:
        outcomes = []
        async with AsyncGuard(
            where.cluster.url, secret=SECRET, policies=POLICY, deadline_ms=HURRIED_MS
        ) as guard:
            for step in ("before", "open", "after"):
                if step == "open":
                    where.cluster.begin_move(slot, to)
                if step == "after":
                    where.cluster.move_keys(slot, to)
                    where.cluster.end_move(slot, to)
                try:
                    await guard.attempt("login", account="bob", client=CLIENT)
                except StoreUnavailable as error:
                    outcomes.append(error.reason)
                else:
                    outcomes.append("admitted")
        return outcomes

    assert asyncio.run(story()) == ["admitted", "slot moving", "admitted"]
    assert where.used("account", account="bob", client=CLIENT) == 2


@pytest.mark.slow
def test_attempts_while_a_slot_moves_to_and_fro(
    where: Map, guard_factory: Guards, move: tuple[int, Node, Node]
) -> None:
    """Ten moves under sixteen threads: exactly five admitted, and as many entries as admissions."""
    slot, source, to = move
    guard = guard_factory(deadline_ms=500)
    over = threading.Event()
    outcomes: list[str] = []

    def work(number: int) -> None:
        while not over.is_set():
            outcomes.append(tried(guard, "bob", f"10.{number}.0.1"))

    threads = [threading.Thread(target=work, args=[number]) for number in range(16)]
    for thread in threads:
        thread.start()
    for round_ in range(10):
        target = (to, source)[round_ % 2]
        where.cluster.begin_move(slot, target)
        where.cluster.move_keys(slot, target)
        where.cluster.end_move(slot, target)
    over.set()
    for thread in threads:
        thread.join()
    assert set(outcomes) <= {"admitted", "account", "slot moving", "timeout"}
    # An answer that is lost at the deadline may stand for a place that is taken, never given.
    assert 5 - outcomes.count("timeout") <= outcomes.count("admitted") <= 5
    assert where.used("account", account="bob", client=CLIENT) == 5
    assert isinstance(guard.attempt("login", account="omar", client=CLIENT), Attempt)
