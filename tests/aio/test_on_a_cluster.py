"""The awaited guard on a cluster of three: exact, safe to cancel, and back when the nodes are."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Guard, StoreUnavailable
from tests.conftest import SECRET
from tests.servers import three_nodes, wait_until

from .conftest import a_guard, run
from .test_cancelling import attempt, is_cancelled
from .test_together import twenty_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Cluster

#: B121: so long may it take until all is well again, in seconds.
BACK_S = 5.0
#: So long are the nodes away.
AWAY_S = 4.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run one for all tests here."""
    with three_nodes() as nodes:
        yield nodes


@pytest.fixture
def url(cluster: Cluster) -> str:
    """Give its address, emptied."""
    for node in cluster.nodes:
        node.client.flushall()
    return cluster.url


def test_fifty_at_once_admit_five(url: str) -> None:
    """B123: on a cluster too exactly 5 of 50 gathered attempts are admitted, 20 times."""
    assert run(twenty_rounds(url)) == [5] * 20


@pytest.mark.parametrize("ready", [False, True])
def test_an_attempt_is_cancelled_at_every_wait(url: str, cluster: Cluster, ready: bool) -> None:
    """Cancelled between its groups or anywhere else, a place may stay taken; none is too many."""
    cancelled = is_cancelled(lambda: a_guard(url), attempt, ready=ready)
    assert len(cancelled) >= 4  # two groups, each in two ways
    assert {taken for _, taken in cancelled} == {0, 1}
    for node in cluster.nodes:
        wait_until(
            lambda node=node: (
                not [each for each in node.client.client_list() if each["cmd"] != "client|list"]
            ),
            "every other connection is closed",
        )


def ask(guard: Any, number: int) -> str:
    """Ask a guard that waits; tell the reason why there was no verdict."""
    try:
        guard.attempt("login", **somebody(number))
    except StoreUnavailable as error:
        return error.reason
    return "ok"


async def ask_async(guard: Any, number: int) -> str:
    """Ask a guard that is awaited; tell the same."""
    try:
        await guard.attempt("login", **somebody(number))
    except StoreUnavailable as error:
        return error.reason
    return "ok"


def somebody(number: int) -> dict[str, str]:
    """Name somebody else from somewhere else: what a stopped node was sent may count later."""
    return {"account": f"u{number}", "client": f"10.{number // 250}.{number % 250}.1"}


@pytest.mark.parametrize("fault", ["stopped", "killed"])
@pytest.mark.parametrize("make", [Guard, a_guard])
def test_all_nodes_away_for_a_while(fault: str, make: Any) -> None:
    """B121: 503s while all nodes are away, and within 5 s right again, without a restart."""
    numbers = count()

    async def thirty(guard: Any) -> set[str]:
        asked = [next(numbers) for _ in range(30)]
        if isinstance(guard, Guard):
            return set(await asyncio.gather(*(asyncio.to_thread(ask, guard, n) for n in asked)))
        return set(await asyncio.gather(*(ask_async(guard, n) for n in asked)))

    async def back(guard: Any) -> float:
        begun_s = time.monotonic()
        while await thirty(guard) != {"ok"}:
            assert time.monotonic() - begun_s < BACK_S
        return time.monotonic() - begun_s

    async def story(cluster: Cluster) -> None:
        guard = make(cluster.url, secret=SECRET, deadline_ms=500)
        await back(guard)
        for node in cluster.nodes:
            node.stop() if fault == "stopped" else node.kill()
        until_s = time.monotonic() + AWAY_S
        while time.monotonic() < until_s:
            assert "ok" not in await thirty(guard)
            await asyncio.sleep(0.05)
        for node in cluster.nodes:
            node.cont() if fault == "stopped" else await asyncio.to_thread(node.start)
        await asyncio.to_thread(cluster.wait_until_ok)  # their own agreement is not our time
        print(f"B121: {fault}, {make.__name__}: back in {await back(guard):.2f} s")  # noqa: T201
        if (closing := guard.close()) is not None:
            await closing

    with three_nodes() as nodes:
        run(story(nodes), thorough=True)
