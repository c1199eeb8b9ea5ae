"""Questions to a node about the others: whether it is a primary, and who takes its place."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from authguard.ops.check.node import CantTellError
from authguard.ops.check.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authguard.ops.check.node import Node

__all__ = ["part", "replicas"]

#: The slots of a cluster.
SLOTS: Final = 16_384


def part(node: Node) -> Iterator[Finding]:
    """Which part it plays, and whether all of a cluster is served."""
    if node.info("replication", "role") != "master":
        yield Finding(
            "AG071",
            "error",
            "it is a replica: it takes no writes, so every attempt is refused",
            "point the store's address at the primary, or at the sentinels (valkey+sentinel://)",
        )
    elif node.kind == "cluster":
        yield from _cluster(node)
    elif node.info("cluster", "cluster_enabled") == "1":
        yield Finding(
            "AG071",
            "error",
            "it is a node of a cluster: what other nodes hold is refused",
            "write valkey+cluster:// in the store's address",
        )
    else:
        alone = "a server by itself" if node.kind == "server" else "the sentinels' primary"
        yield Finding("AG071", "ok", alone)


def _cluster(node: Node) -> Iterator[Finding]:
    found: list[tuple[str, str]] = []
    if (unserved := SLOTS - node.slots("cluster_slots_assigned")) > 0:
        found.append(("error", f"{unserved:,} of the cluster's {SLOTS:,} slots are nobody's"))
    if failed := node.slots("cluster_slots_fail"):
        found.append(("error", f"{failed:,} of the cluster's slots are of a node that failed"))
    if doubted := node.slots("cluster_slots_pfail"):
        found.append(("warning", f"{doubted:,} of the cluster's slots are of a node that is slow"))
    if (state := node.cluster("cluster_state")) != "ok":
        found.append(("error", f"cluster_state is {state}: attempts are refused"))
    mend = (
        "valkey-cli --cluster check HOST:PORT, then --cluster fix HOST:PORT; see that all nodes run"
    )
    for level, seen in found:
        yield Finding("AG071", "error" if level == "error" else "warning", seen, mend)
    if not found:
        yield Finding(
            "AG071", "ok", f"a primary of a cluster, and sees all its {SLOTS:,} slots served"
        )


def replicas(node: Node) -> Iterator[Finding]:
    """Whether somebody takes its place when it is lost, and what is lost with it."""
    if node.kind == "server":
        return
    if node.number("replication", "connected_slaves") == 0:
        yield Finding(
            "AG072",
            "warning",
            "no replica is connected: while this node is away its accounts and clients are refused"
            " (everybody, unless cluster-require-full-coverage is no), and with its disk their"
            " counts are lost",
            "give it a replica",
        )
        return
    seen = "a replica is connected: the last moment's counts can be lost with the primary"
    least = "1"
    with suppress(CantTellError):
        least = node.config("min-replicas-to-write")
    if least != "0":
        yield Finding("AG072", "ok", seen)
    elif node.kind == "cluster":  # its planned failovers wait for the replica
        seen += "; min-replicas-to-write 1 bounds what one that is cut off goes on counting alone"
        yield Finding("AG072", "ok", seen)
    else:
        yield Finding(
            "AG072",
            "warning",
            "min-replicas-to-write is 0: in a failover the old primary goes on admitting for a"
            " second or two until it is told, and all that it counts then is lost",
            "on each server CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 1, then"
            " CONFIG REWRITE; it then refuses while no replica is there, so have two",
        )
