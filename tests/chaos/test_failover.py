"""Another server takes over: a planned change loses nothing, a dead primary its last moment."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from authguard import Guard
from tests.chaos.conftest import keys_of
from tests.chaos.ledger import POLICIES
from tests.conftest import SECRET
from tests.servers import sentinels, three_nodes, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.chaos.conftest import Endure
    from tests.chaos.load import Storm
    from tests.servers import Cluster, Node, Sentinels

pytestmark = pytest.mark.slow

#: Replication is asynchronous: what a primary said so shortly before its end, its replica may not
#: have heard. On one machine it is a millisecond or so; the rest is for two busy cores.
LAST_MOMENT_S = 0.25

#: A primary that nobody follows any more admits nobody.
STRICT = {"min_replicas_to_write": "1", "min_replicas_max_lag": "1"}


class Pair:
    """A primary and its replica, as the audit sees them."""

    def __init__(self, servers: Sentinels) -> None:
        self.url = servers.url
        self._servers = servers

    def all_keys(self) -> Iterable[bytes]:
        """List every key there is."""
        return self._servers.primary.client.scan_iter(count=1000)


class Ring:
    """A cluster, as the audit sees it."""

    def __init__(self, cluster: Cluster) -> None:
        self.url = cluster.url
        self._cluster = cluster

    def all_keys(self) -> Iterator[bytes]:
        """List every key there is."""
        for node in self._cluster.primaries:
            yield from node.client.scan_iter(count=1000)


def test_sentinels_hand_over(endure: Endure) -> None:
    """B054: where the primary itself hands over to its replica, no attempt is lost."""
    with sentinels() as servers:

        def fault(storm: Storm) -> None:
            former, sentinel = servers.primary, servers.sentinels[0]
            sentinel.client.execute_command("SENTINEL", "FAILOVER", servers.NAME, "COORDINATED")
            servers.wait_for_switch(former)

        endure("SENTINEL FAILOVER COORDINATED", Pair(servers), fault)


@pytest.mark.parametrize("config", [{}, STRICT], ids=["as check warns of", "min-replicas-to-write"])
def test_sentinels_fail_over(endure: Endure, config: dict[str, str]) -> None:
    """B054, A95: promoted without a word, a replica lacks what the old primary admitted since."""
    with sentinels(**config) as servers:

        def fault(storm: Storm) -> None:
            former, sentinel = servers.primary, servers.sentinels[0]
            sentinel.client.execute_command("SENTINEL", "FAILOVER", servers.NAME)
            servers.wait_for_switch(former)
            # Until it is told that it follows now, the old primary admits whoever asks it.
            wait_until(
                lambda: former.client.info("replication")["role"] == "slave", f"{former} follows"
            )

        case = "min-replicas-to-write 1" if config else "as check warns of"
        endure(f"SENTINEL FAILOVER, {case}", Pair(servers), fault, loses_s=LAST_MOMENT_S)


def test_sentinels_replace_a_dead_primary(endure: Endure) -> None:
    """A95, B054: after SIGKILL of the primary its replica decides; the last moment may be lost."""
    with sentinels() as servers:

        def fault(storm: Storm) -> None:
            servers.kill_primary()

        endure("SIGKILL of sentinels' primary", Pair(servers), fault, loses_s=LAST_MOMENT_S)


def test_a_cluster_hands_over(endure: Endure) -> None:
    """B054: a planned fail-over of each of a cluster's primaries in turn loses no attempt."""
    with three_nodes(replicas=1) as cluster:

        def fault(storm: Storm) -> None:
            for node in cluster.primaries:
                cluster.fail_over(node)
                storm.more(100)

        endure("CLUSTER FAILOVER of all three", Ring(cluster), fault)


def test_a_cluster_replaces_a_dead_primary(endure: Endure) -> None:
    """A95: after SIGKILL of a primary its replica decides; the last moment may be lost."""
    with three_nodes(replicas=1) as cluster:

        def fault(storm: Storm) -> None:
            cluster.kill(cluster.primaries[0])

        endure("SIGKILL of a cluster's primary", Ring(cluster), fault, loses_s=LAST_MOMENT_S)


class Move(NamedTuple):
    """A slot on its way, the old way: opened, its keys sent one by one, closed."""

    slot: int
    source: Node
    to: Node

    def begin(self) -> None:
        """Open it: from now on its old node sends on whoever asks for what it has not."""
        self.to.ask("SETSLOT", self.slot, "IMPORTING", self.source.id)
        self.source.ask("SETSLOT", self.slot, "MIGRATING", self.to.id)

    def keys(self) -> None:
        """Send its keys."""
        ask = self.source.client.execute_command
        while key := ask("CLUSTER", "GETKEYSINSLOT", self.slot, 1):
            ask("MIGRATE", "127.0.0.1", self.to.port, key[0], 0, 5_000)

    def end(self, nodes: Iterable[Node]) -> None:
        """Close it; its new node first, so that no slot is ever nobody's."""
        for node in dict.fromkeys((self.to, self.source, *nodes)):
            node.ask("SETSLOT", self.slot, "NODE", self.to.id)


def test_slots_move(endure: Endure) -> None:
    """A96: while the keys being tried move one by one to other nodes, each attempt counts once."""
    with (
        three_nodes() as cluster,
        Guard(cluster.url, secret=SECRET, policies=POLICIES) as guard,
    ):
        nodes = cluster.nodes

        def move_what_is_tried_next(storm: Storm, to: Node) -> None:
            # To one node at a time: two that take slots at once may come by the same epoch.
            keys = {key for who in storm.coming(50, 200) for key in keys_of(guard, who)}
            owners = {slot: node for node in nodes for slot in node.sees_itself().slots}
            moves = [
                Move(slot, owners[slot], to)
                for slot in {cluster.slot_of(key) for key in keys}
                if owners[slot] is not to
            ]
            for move in moves:
                move.begin()
            storm.more(100)
            for move in moves:
                move.keys()
                move.end(nodes)
            cluster.wait_until_ok()

        def fault(storm: Storm) -> None:
            for turn in range(4):
                move_what_is_tried_next(storm, nodes[turn % 3])

        endure("slots move, key by key", Ring(cluster), fault)
        told = [error for node in nodes for error in node.client.info("errorstats")]
        assert {"errorstat_ASK", "errorstat_MOVED"} <= set(told)


def test_a_node_loses_its_scripts_all_the_time(endure: Endure) -> None:
    """B122: while one node of three forgets its scripts, an attempt is charged once on each."""
    with three_nodes() as cluster:

        def fault(storm: Storm) -> None:
            for _ in range(100):
                cluster.nodes[0].client.script_flush()
                storm.more(10)

        endure("SCRIPT FLUSH on one node", Ring(cluster), fault)


def test_all_nodes_are_away(endure: Endure) -> None:
    """B121, B048: with no node left all is 503; when they are back, the same guard decides."""
    with three_nodes(appendonly="yes", appendfsync="always") as cluster:

        def fault(storm: Storm) -> None:
            each: Node
            for each in cluster.nodes:
                cluster.kill(each)
            time.sleep(2)
            for each in cluster.nodes:
                each.start()
            cluster.wait_until_ok()

        endure("all nodes of a cluster away for 2 s", Ring(cluster), fault)
