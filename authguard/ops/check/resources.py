"""Questions to a node about what it can run out of: memory and connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from authguard.ops.check.node import CantTellError
from authguard.ops.check.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authguard.ops.check.node import Node
    from authguard.ops.check.report import Level

__all__ = ["connections", "eviction", "memory"]

#: Per cent in use from which it is a warning, and an error.
HIGH: Final = 80
FULL: Final = 95

#: Per cent of the machine's memory, where nothing but the machine bounds the server: a rewrite of
#: the append-only file can need as much again.
HALF: Final = 50


def eviction(node: Node) -> Iterator[Finding]:
    """Whether a full memory takes counts away."""
    policy = node.info("memory", "maxmemory_policy")
    if policy == "noeviction":
        seen = "maxmemory-policy noeviction: a full memory refuses attempts, and forgets none"
        yield Finding("AG064", "ok", seen)
        return
    bounded = node.number("memory", "maxmemory") > 0
    when = "when the memory is full" if bounded else "as soon as maxmemory is set"
    yield Finding(
        "AG064",
        "error" if bounded else "warning",
        f"maxmemory-policy {policy}: {when}, counts and locks are thrown out, and guessers start"
        " afresh",
        "CONFIG SET maxmemory-policy noeviction, then CONFIG REWRITE; give a cache its own server",
    )


def memory(node: Node) -> Iterator[Finding]:
    """How much memory is left."""
    bound = node.number("memory", "maxmemory")
    if bound:
        share = _per_cent(node.number("memory", "used_memory"), bound)
        level = _level(share)
        seen = f"{share} % of maxmemory ({_size(bound)}) is in use"
        if level != "ok":
            seen += ": when it is full, every attempt is refused, or counts are thrown out (AG064)"
        elif (machines := _machines(node)) and bound > machines:
            level = "warning"
            seen += f", and it is more than the machine has ({_size(machines)})"
        mend = "see what fills it (INFO memory, --bigkeys); then CONFIG SET maxmemory to fit"
        yield Finding("AG069", level, seen, None if level == "ok" else mend)
        return
    machines = _machines(node)
    if not machines:
        raise CantTellError(
            "no maxmemory is set, and this server doesn't tell how much its machine has",
            "CONFIG SET maxmemory to what can be spared, then CONFIG REWRITE",
        )
    share = _per_cent(node.number("memory", "used_memory_rss"), machines)
    seen = f"no maxmemory is set; the server takes {share} % of its machine's {_size(machines)}"
    if share < HALF:
        yield Finding("AG069", "ok", seen)
    else:
        yield Finding(
            "AG069",
            "warning",
            f"{seen}: when that is full, the system ends the server",
            "CONFIG SET maxmemory to what can be spared, then CONFIG REWRITE",
        )


def connections(node: Node) -> Iterator[Finding]:
    """How many connections are left."""
    most = node.number("clients", "maxclients")
    share = _per_cent(node.number("clients", "connected_clients"), most)
    level = _level(share)
    seen = f"{share} % of the {most:,} connections it takes are in use"
    if level == "ok":
        yield Finding("AG070", level, seen)
    else:
        yield Finding(
            "AG070",
            level,
            f"{seen}: with none left, attempts are refused",
            "CONFIG SET maxclients higher, or see who holds them (CLIENT LIST); each process of an"
            " app opens 64 at most",
        )


def _machines(node: Node) -> int:
    """Give the memory of its machine in bytes; 0 if it doesn't tell."""
    try:
        return node.number("memory", "total_system_memory")
    except CantTellError:
        return 0


def _per_cent(used: int, of: int) -> int:
    return -(-used * 100 // of) if of else 100


def _level(per_cent: int) -> Level:
    return "error" if per_cent > FULL else "warning" if per_cent > HIGH else "ok"


def _size(count: int) -> str:
    """Give a number of bytes in a unit that a person reads."""
    for unit, power in (("GB", 30), ("MB", 20)):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count / 1024:.1f} kB"
