"""Questions to a node about what attempts need: its version, scripts, clock and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from authguard.ops.check.node import CantTellError, rule_of
from authguard.ops.check.report import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authguard.ops.check.node import Node

__all__ = ["clock", "denied", "permissions", "scripts", "version"]

#: The oldest Redis that our scripts run on; every Valkey is newer.
OLDEST_REDIS: Final = (6, 2)

#: From this difference of clocks on, two times of one event confuse whoever reads them.
APART_MS: Final = 2_000

#: Why a server that runs scripts takes no writes from them, and what helps.
_NO_WRITES: Final = {
    "READONLY": "it is a replica: point the store's address at the primary",
    "MISCONF": "it can't write to its disk (AG063): look at its log and its disk",
    "OOM": "its memory is full (AG069): raise maxmemory",
    "NOREPLICAS": "too few replicas are there: bring one back, or lower min-replicas-to-write",
}


def version(node: Node) -> Iterator[Finding]:
    """Which server it is, and whether it is new enough."""
    try:
        told = f"Valkey {node.info('server', 'valkey_version')}"
    except CantTellError:
        told = f"Redis {node.info('server', 'redis_version')}"
    name, _, number = told.partition(" ")
    oldest = ".".join(map(str, OLDEST_REDIS))
    if name == "Redis" and _parts(number) < OLDEST_REDIS:
        yield Finding(
            "AG060",
            "error",
            f"{told} answers: it is older than Redis {oldest}, the oldest that the scripts are for",
            f"take Valkey, or Redis {oldest} or later",
        )
    else:
        yield Finding("AG060", "ok", f"{told} answers")


def _parts(number: str) -> tuple[int, ...]:
    return tuple(int(part) for part in number.split(".")[:2] if part.isdigit())


def scripts(node: Node) -> Iterator[Finding]:
    """Whether scripts run, and may write now."""
    failed = node.needs().failed
    broken = [verb for verb in ("EVAL", "EVALSHA") if failed.get(verb) == "ERR"]
    refusing = next((why for why in failed.values() if why in _NO_WRITES), None)
    if broken:
        yield Finding(
            "AG066",
            "error",
            f"the server runs no script: it doesn't know {', '.join(broken)}, so every attempt is"
            " refused",
            "give scripts back (rename-command?); a hosted server without them is of no use",
        )
    elif refusing is not None:
        yield Finding(
            "AG066",
            "error",
            f"the server takes no writes now ({refusing}), so every attempt is refused",
            _NO_WRITES[refusing],
        )
    elif unknown := _unknown(node):
        yield Finding(
            "AG066",
            "error",
            f"{', '.join(unknown)} fails in scripts, so attempts are refused",
            "give the command back (rename-command?), or look at the server's log",
        )
    elif not {"EVAL", "EVALSHA", "SELECT"}.intersection(failed):
        yield Finding("AG066", "ok", "scripts run, by EVALSHA and by EVAL")


def _unknown(node: Node) -> list[str]:
    """Name the commands that fail for no reason of the ACL's."""
    if node.kind == "cluster":  # a key of another node's fails so, too
        return []
    failed = node.needs().failed
    return [verb for verb, why in failed.items() if why not in ("command", "key")]


def clock(node: Node) -> Iterator[Finding]:
    """How far the store's clock and this machine's are apart."""
    needs = node.needs()
    if needs.ahead_ms is None:
        return  # what keeps it from being read is an error of its own
    if abs(needs.ahead_ms) - needs.within_ms < APART_MS:
        seen = f"the store's clock and this machine's differ by less than {APART_MS // 1000} s"
        yield Finding("AG067", "ok", seen)
        return
    side = "ahead of" if needs.ahead_ms > 0 else "behind"
    yield Finding(
        "AG067",
        "warning",
        f"the store's clock is {abs(needs.ahead_ms) // 1000:,} s {side} this machine's: decisions"
        " follow the store's alone, but logs, cookies and links follow this machine's",
        "set both by NTP (chrony, systemd-timesyncd); the store's must not step back",
    )


def denied(*commands: str) -> Finding:
    """Say which commands the ACL denies."""
    rules = " ".join(map(rule_of, commands))
    return Finding(
        "AG068",
        "error",
        f"the store's user may not run {', '.join(commands)}, which attempts need",
        f"let it: ACL SETUSER … {rules} (docs/store.md#permissions)",
    )


def permissions(node: Node) -> Iterator[Finding]:
    """Whether the ACL lets attempts do what they need."""
    failed = node.needs().failed
    commands = [verb for verb, why in failed.items() if why == "command" and verb != "ROLE"]
    keyless = [verb for verb, why in failed.items() if why == "key"]
    if commands:
        yield denied(*commands)
    if keyless:
        yield Finding(
            "AG068",
            "error",
            f"the store's user may not run {', '.join(keyless)} on keys such as rl:v1:…, which"
            " attempts need",
            "let it: ACL SETUSER … ~rl:v1:* (docs/store.md#permissions)",
        )
    if "ROLE" in failed:
        yield Finding(
            "AG068",
            "warning",
            "the store's user may not run ROLE: whom sentinels name isn't asked whether it leads",
            f"let it: ACL SETUSER … {rule_of('ROLE')} (docs/store.md#permissions)",
        )
    elif not {"EVAL", "EVALSHA"}.issubset(failed) and not commands and not keyless:
        yield Finding("AG068", "ok", "the store's user may do all that attempts need")
