"""The awaited guard looks its store over as the one that waits does, and the loop goes on."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Guard, StoreUnavailable
from authguard.stores.memory import MemoryStore
from tests.conftest import SECRET
from tests.servers import three_nodes, wait_until
from tests.stores.conftest import stopped

from .conftest import a_guard, run

if TYPE_CHECKING:
    import valkey

    from authguard.ops.check import CheckReport
    from authguard.testing import EmbeddedValkey


async def checked(url: str) -> CheckReport:
    """Look over in a loop."""
    async with a_guard(url) as guard:
        return await guard.check()


def told(report: CheckReport) -> list[tuple[str, str]]:
    """Give the codes and levels; figures such as memory in use are another each time."""
    return [(finding.code, finding.level) for finding in report.findings]


def test_both_guards_find_the_same(valkey_url: str, client: valkey.Valkey) -> None:
    """The findings are those of Guard.check, good and bad, and nothing is written."""
    for policy in ("noeviction", "allkeys-lru"):
        client.config_set("maxmemory-policy", policy)
        try:
            with Guard(valkey_url, secret=SECRET) as guard:
                expected = guard.check()
            report = run(checked(valkey_url), thorough=True)
        finally:
            client.config_set("maxmemory-policy", "noeviction")
        assert told(report) == told(expected)
        assert ("AG064", "warning") in told(report) or policy == "noeviction"
        assert report.quotas == expected.quotas
    assert client.dbsize() == 0


@pytest.mark.slow
def test_a_cluster_is_looked_over_node_by_node() -> None:
    """A cluster is asked as one: its parts and its missing replicas are told."""
    with three_nodes() as cluster, Guard(cluster.url, secret=SECRET) as guard:
        report = run(checked(cluster.url), thorough=True)
        assert told(report) == told(guard.check())
        assert "all its 16,384 slots served" in str(report.findings)


def test_its_connections_are_let_go(
    valkey_url: str, client: valkey.Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened to ask is closed when the answer is there."""

    async def story() -> None:
        async with a_guard(valkey_url) as guard:
            await guard.peek("login", account="vera", client="192.0.2.7")
            before = len(client.client_list())
            asked = guard.store.waiting()  # held here, so that no collector closes them
            monkeypatch.setattr(guard.store, "waiting", lambda: asked)
            await guard.check()
            let_go = "the connections to be let go"
            await asyncio.to_thread(wait_until, lambda: len(client.client_list()) <= before, let_go)

    run(story(), thorough=True)


def test_the_loop_goes_on_while_a_server_is_silent(
    valkey_server: EmbeddedValkey, valkey_url: str
) -> None:
    """A server that hangs is StoreUnavailable, as in Guard.check, and other tasks run meanwhile."""

    async def story() -> int:
        async with a_guard(valkey_url, deadline_ms=400) as guard:
            looking = asyncio.create_task(guard.check())
            turns = 0
            while not looking.done():
                await asyncio.sleep(0.001)
                turns += 1
            with pytest.raises(StoreUnavailable, match="timeout"):
                await looking
            return turns

    with stopped(valkey_server):
        assert run(story(), thorough=True) > 20


def test_a_cancelled_check_leaves_nothing(valkey_server: EmbeddedValkey, valkey_url: str) -> None:
    """Cancelled, it ends at once; its thread ends within the deadline, and complains of nothing."""

    async def story() -> None:
        async with a_guard(valkey_url, deadline_ms=400) as guard:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(guard.check(), 0.05)

    with stopped(valkey_server):
        run(story(), thorough=True)
    asking = [each for each in threading.enumerate() if each.name.startswith("asyncio_")]
    assert asking == []


class Unasked:
    """A store of one's own that runs calls and can't be asked anything else."""

    spread = False

    def __init__(self) -> None:
        self._memory = MemoryStore(lambda: 0)

    async def run(self, call: Any) -> Any:
        """Run it at once."""
        return self._memory.run(call)

    def one_deadline(self) -> Any:
        """Bound nothing: it never waits."""
        return self._memory.one_deadline()

    async def close(self) -> None:
        """Keep nothing open."""


def test_a_store_of_ones_own_is_told_to_be_unseen() -> None:
    """What can't be looked over is a warning that names the store and what it would need."""

    async def story() -> CheckReport:
        async with a_guard(Unasked()) as guard:
            return await guard.check()

    (finding,) = (each for each in run(story()).findings if each.code == "AG065")
    assert finding.level == "warning"
    assert "Unasked can't be looked over" in finding.seen
    assert "waiting()" in str(finding.mend)
