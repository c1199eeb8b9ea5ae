"""
A look over the store and the settings: a list of findings, each with its mend.

A question looks at one thing and gives what it found; :data:`_OF_A_NODE` lists those that every
node of the store is asked. What it doesn't let be seen is a finding too, not a failure.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from authguard.errors import StoreUnavailable
from authguard.ops.check import access, persistence, resources, topology
from authguard.ops.check.node import CantTellError, Node, refused_by
from authguard.ops.check.outages import mend_of
from authguard.ops.check.policies import of_policies, quotas
from authguard.ops.check.report import CheckReport, Finding, Level
from authguard.ops.check.settings import Setup, of_secrets, of_setup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard._guard_base import GuardBase
    from authguard.guard import Guard
    from authguard.guard_async import AsyncGuard
    from authguard.ops.check.policies import Quotas
    from authguard.stores._address import Address
    from authguard.stores.base import Store

__all__ = ["CheckReport", "Finding", "Level", "Setup", "acheck", "check", "quotas"]


def check(guard: Guard, setup: Setup | None = None) -> CheckReport:
    """
    Look a guard's store and settings over; writes nothing.

    Args:
        guard: The guard.
        setup: What the app knows besides; without it, no word on that.

    Raises:
        StoreUnavailable: If the store gave no clear answer: of a cluster, none of its nodes.
    """
    kept = quotas(guard.policies)
    found = _of_the_store(guard.store, kept)
    if not found:
        guard.now_ms()  # what can't be asked must decide all the same
        found = [_unseen(guard.store, "use a ValkeyStore, or give yours ask(*command)")]
    return _report(guard, kept, found, setup)


async def acheck(guard: AsyncGuard) -> CheckReport:
    """Do the same for asyncio: the questions wait, so a thread asks, by connections of its own."""
    import asyncio  # noqa: PLC0415 (30 ms that the command need not take)

    kept = quotas(guard.policies)
    waiting = getattr(guard.store, "waiting", None)
    found: list[Finding] = []
    if callable(waiting):
        found = await asyncio.to_thread(_of_a_store_to_close, waiting(), kept)
    if not found:
        await guard.now_ms()
        mend = "use an AsyncValkeyStore, or give yours waiting(), which gives a store to be asked"
        found = [_unseen(guard.store, mend)]
    return _report(guard, kept, found, None)


def _report(
    guard: GuardBase, kept: Quotas, found: list[Finding], setup: Setup | None
) -> CheckReport:
    """Add what needs no store."""
    found.extend(of_policies(guard.policies))
    # Nobody else is shown them.
    found.extend(of_secrets([each._key for each in guard._engine.pseudonyms]))  # noqa: SLF001
    if setup is not None:
        found.extend(of_setup(setup))
    return CheckReport(tuple(found), kept)


def _of_a_store_to_close(store: Store, kept: Quotas) -> list[Finding]:
    with closing(store):
        return _of_the_store(store, kept)


def _of_the_store(store: Store, kept: Quotas) -> list[Finding]:
    """Ask every node; give nothing if the store can't be asked."""
    ask = getattr(store, "ask", None)
    return list(_asked(store, ask, kept)) if callable(ask) else []


def _asked(store: Store, ask: Callable[..., object], kept: Quotas) -> Iterator[Finding]:
    kind, nodes = getattr(store, "kind", "server"), getattr(store, "nodes", None)
    asked = [Node(ask, kind, kept)]
    if callable(nodes):
        try:
            asked = [Node(partial(ask, node=each), kind, kept, str(each)) for each in nodes()]
        except StoreUnavailable as error:
            # To find the nodes is the first thing that takes a permission.
            if error.reason != "no permission":
                raise
            yield access.denied(refused_by(error, "CLUSTER SLOTS"))
            return
    yield from _of_nodes(asked)
    if kind == "sentinel":
        yield from _of_sentinels(ask, store.address)  # type: ignore[attr-defined]


def _of_sentinels(ask: Callable[..., object], address: Address) -> Iterator[Finding]:
    """Ask each sentinel whom it names; one that doesn't answer is missed when the others fail."""
    for sentinel in address.nodes:
        seen, mend = "", "see that all watch the same name, and that the address has it"
        try:
            command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.name)
            if ask(*command, node=sentinel) is None:
                seen = f"sentinel {sentinel} knows no {address.name}"
        except StoreUnavailable as error:
            seen = f"sentinel {sentinel} gave no clear answer ({error.reason})"
            mend = mend_of(error.reason)
        if seen:
            yield Finding("AG071", "warning", seen, mend)


def _of_nodes(nodes: list[Node]) -> Iterator[Finding]:
    """Ask each of them all; who gives no answer is a finding, unless all are away."""
    answers: dict[str, list[list[Finding]]] = {}
    away: dict[str, StoreUnavailable] = {}
    for node in nodes:
        try:
            answers[node.name] = list(_answers(node))
        except StoreUnavailable as error:
            away[node.name] = error
    if not answers:
        raise next(iter(away.values()), StoreUnavailable("no node"))
    for name, outage in away.items():
        yield Finding(
            "AG071",
            "error",
            f"{name}: gave no clear answer ({outage.reason}): its accounts and clients are refused",
            "see that it runs; without a replica nobody takes its place",
        )
    for same in zip(*answers.values(), strict=True):
        yield from _joined(dict(zip(answers, same, strict=True)))


def _answers(node: Node) -> Iterator[list[Finding]]:
    """Ask a node all questions; give what each found."""
    for code, question in _OF_A_NODE:
        found: list[Finding] = []
        try:
            found.extend(question(node))
        except CantTellError as error:
            found.append(Finding(code, "warning", f"can't tell: {error}", error.mend))
        yield found


def _joined(found: dict[str, list[Finding]]) -> Iterator[Finding]:
    """Say once what was found on all nodes, and of the rest on which."""
    on: dict[Finding, list[str]] = {}
    for name, findings in found.items():
        for finding in findings:
            on.setdefault(finding, []).append(name)
    for finding, names in on.items():
        if len(names) == len(found):
            yield finding
        else:
            seen = f"{', '.join(names)}: {finding.seen}"
            yield Finding(finding.code, finding.level, seen, finding.mend)


def _unseen(store: object, mend: str) -> Finding:
    seen = (
        f"can't tell: a {type(store).__name__} can't be looked over, nor whether its counts survive"
        " a restart"
    )
    return Finding("AG065", "warning", seen, mend)


#: What a node is asked, in this order: the code of what can't be told, and the question.
_OF_A_NODE: Final[tuple[tuple[str, Callable[[Node], Iterator[Finding]]], ...]] = (
    ("AG060", access.version),
    ("AG061", persistence.persistence),
    ("AG062", persistence.flushing),
    ("AG063", persistence.writing),
    ("AG064", resources.eviction),
    ("AG066", access.scripts),
    ("AG067", access.clock),
    ("AG068", access.permissions),
    ("AG069", resources.memory),
    ("AG070", resources.connections),
    ("AG071", topology.part),
    ("AG072", topology.replicas),
)
