"""What the tests on a cluster share: three nodes a module, and who of whom has keys where."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from authguard import Guard
from authguard._subjects import Claims
from authguard.stores.valkey import ValkeyStore
from tests.conftest import PATIENT_MS, SECRET
from tests.servers import three_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard._core.calls import ScriptCall
    from tests.servers import Cluster, Node

#: Windows longer than any test: nothing leaves them by itself.
POLICY: dict[str, Any] = {
    "login": {
        "limits": [
            {"name": "account", "by": ["account"], "sliding_log": "5/1h", "lockout": ["1h"]},
            {"name": "client", "by": ["client"], "sliding_log": "20/1h"},
        ]
    }
}


class Recording(ValkeyStore):
    """The store, with every call written down."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.calls: list[ScriptCall[Any]] = []
        super().__init__(*args, **settings)

    def run(self, call: ScriptCall[Any]) -> Any:
        """Write it down, and run it."""
        self.calls.append(call)
        return super().run(call)


@dataclass
class Map:
    """
    Who is where.

    Attributes:
        cluster: The cluster.
        guard: Whose keys they are.
    """

    cluster: Cluster
    guard: Guard
    _owners: dict[int, Node] = field(default_factory=dict)

    def groups(self, account: str, client: str, action: str = "login") -> list[tuple[str, ...]]:
        """Name the keys of an attempt, group by group: the client's first."""
        known = self.guard._subjects.known(self.guard.policy(action), Claims(account, client))
        shape = self.guard._shape(action, known.subjects)
        bindings = self.guard._engine.bind(shape, known.pseudonyms).bindings
        return [binding.keys + binding.block_keys for binding in bindings]

    def slots(self, account: str, client: str) -> tuple[int, int]:
        """Give the client's slot, and the account's."""
        first, second = (self.cluster.slot_of(keys[0]) for keys in self.groups(account, client))
        return first, second

    def node(self, slot: int) -> Node:
        """Find a slot's node; asked once."""
        if not self._owners:
            for node in self.cluster.primaries:
                self._owners |= dict.fromkeys(node.sees_itself().slots, node)
        return self._owners[slot]

    def apart(self, *, client_on: Node, account_on: Node) -> dict[str, str]:
        """Find somebody whose client's keys are on one node, and the account's on another."""
        for number in count():
            client = f"10.{number // 250}.{number % 250}.1"
            if self.node(self.slots("vera", client)[0]) is client_on:
                break
        for number in count():
            account = f"user{number}"
            if self.node(self.slots(account, client)[1]) is account_on:
                return {"account": account, "client": client}
        raise AssertionError

    def used(self, limit: str, **who: str) -> int:
        """Tell how many places of a limit are taken."""
        usages = self.guard.usage("login", **who)
        return next(usage.used for usage in usages if usage.name == limit)


def ran(cluster: Cluster) -> dict[str, Counter[str]]:
    """Count by node what was run: script calls, and all that failed."""
    told = {}
    for node in cluster.living:
        stats: dict[str, Any] = node.client.info("commandstats")
        told[str(node)] = Counter(
            {
                verb: stats[f"cmdstat_{verb}"]["calls"]
                for verb in ("evalsha", "eval")
                if f"cmdstat_{verb}" in stats
            }
        )
    return told


def errors(cluster: Cluster) -> Counter[str]:
    """Count by their first word the errors that the nodes have answered with."""
    told: Counter[str] = Counter()
    for node in cluster.living:
        stats: dict[str, Any] = node.client.info("errorstats")
        for name, of in stats.items():
            told[name.removeprefix("errorstat_")] += int(of["count"])
    return told


def forget_counts(cluster: Cluster) -> None:
    """Let the nodes count commands and errors from here."""
    for node in cluster.living:
        node.client.config_resetstat()


@contextmanager
def guarded(cluster: Cluster, **settings: Any) -> Iterator[Guard]:
    """Give a guard on a cluster."""
    settings = {"secret": SECRET, "policies": POLICY, "deadline_ms": PATIENT_MS} | settings
    with Guard(settings.pop("store", cluster.url), **settings) as guard:
        yield guard


@pytest.fixture(scope="package")
def nodes() -> Iterator[Cluster]:
    """Run three nodes for the quick tests; none of them is ended."""
    with three_nodes() as cluster:
        yield cluster


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    """Give them, emptied."""
    for node in nodes.primaries:
        node.client.flushall()
    forget_counts(nodes)
    return nodes


@pytest.fixture
def guard_factory(cluster: Cluster) -> Iterator[Callable[..., Guard]]:
    """Make guards on the three nodes; they are closed after the test."""
    made: list[Guard] = []

    def make(**settings: Any) -> Guard:
        settings = {"secret": SECRET, "policies": POLICY, "deadline_ms": PATIENT_MS} | settings
        made.append(Guard(settings.pop("store", cluster.url), **settings))
        return made[-1]

    yield make
    for guard in made:
        guard.close()


@pytest.fixture
def where(cluster: Cluster, guard_factory: Callable[..., Guard]) -> Map:
    """Give a guard, and who is where."""
    return Map(cluster, guard_factory())
