"""
Whom to ask: what of a script call goes to which server, written once for both colours.

A route is a generator, as steps are (``_core/steps.py``): it yields what is to be sent and is sent
the reply; whatever fails is raised at its ``yield``. It does no I/O and reads no clock.

No charge is sent twice. A second send follows only where a server says itself that nothing ran:
``NOSCRIPT`` (then the whole script goes, once), ``MOVED`` and ``ASK`` (the slot is with another
node), ``TRYAGAIN`` (its keys are on the way).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from valkey.crc import VALKEY_CLUSTER_HASH_SLOTS, key_slot
from valkey.exceptions import (
    AskError,
    InvalidResponse,
    MovedError,
    NoPermissionError,
    NoScriptError,
    TryAgainError,
)

from authguard.errors import StoreUnavailable
from authguard.stores._address import Node
from authguard.stores._failures import SILENCE, STALE, NoneFreeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard._core.calls import ScriptCall
    from authguard.stores._address import Address

__all__ = ["Asks", "Pause", "Route", "Send", "question", "route_of"]

T = TypeVar("T")

#: How often a call follows a slot to another node; two are normal while a slot is on its way.
_REDIRECTIONS: Final = 5

_LAST_PORT: Final = 65_535

#: Longest wait for keys that are on the way, in seconds; it begins with a hundredth of it.
_LONGEST_PAUSE_S: Final = 0.02


def _as_it_came(reply: object) -> object:
    return reply


class Send(NamedTuple):
    """
    One command for one server.

    Attributes:
        node: The server.
        command: The command and what follows it.
        read: Reads the reply. What it refuses is no reply of that server's to us, so the connection
            is dropped.
        dated: See :class:`authguard._core.calls.ScriptCall`.
        asking: Say ``ASKING`` before, on the same connection: the slot is being moved there.
    """

    node: Node
    command: tuple[Any, ...]
    read: Callable[[object], Any] = _as_it_came
    dated: bool = False
    asking: bool = False


class Pause(NamedTuple):
    """A wait; ``TimeoutError`` is raised at it where too little of the deadline would be left."""

    seconds: float


Asks: TypeAlias = Generator[Send | Pause, Any, T]


class Route(Protocol):
    """Finds the server of a call."""

    @property
    def spread(self) -> bool:
        """Whether keys of different tags may be on different servers."""

    def run(self, call: ScriptCall[T]) -> Asks[T]:
        """Run a call."""

    def nodes(self) -> Asks[tuple[Node, ...]]:
        """Find all servers that decide."""


def route_of(address: Address) -> Route:
    """Give the route of an address."""
    if address.kind == "cluster":
        return _Cluster(address.nodes)
    if address.kind == "sentinel":
        return _Sentinels(address.nodes, address.name)
    return _Server(address.nodes[0])


def _evaluate(node: Node, call: ScriptCall[T], *, asking: bool = False) -> Asks[T]:
    rest = (len(call.keys), *call.keys, *call.args)
    answer: T
    try:
        command = ("EVALSHA", call.script.sha1, *rest)
        answer = yield Send(node, command, call.read, call.dated, asking)
    except NoScriptError:
        command = ("EVAL", call.script.text, *rest)
        answer = yield Send(node, command, call.read, call.dated, asking)
    return answer


def question(node: Node, command: tuple[str, ...]) -> Asks[object]:
    """Ask a server something about itself."""
    return (yield Send(node, command))


class _Server:
    """One server, always the same."""

    spread = False

    def __init__(self, node: Node) -> None:
        self._node = node

    def run(self, call: ScriptCall[T]) -> Asks[T]:
        return _evaluate(self._node, call)

    def nodes(self) -> Asks[tuple[Node, ...]]:
        yield from ()
        return (self._node,)


class _Sentinels:
    """
    The primary that sentinels name, asked for again after any failure.

    It must say itself that it is one: a sentinel that was cut off names the old one for a while.
    """

    spread = False

    def __init__(self, sentinels: tuple[Node, ...], name: str) -> None:
        self._sentinels = sentinels
        self._name = name
        self._primary: Node | None = None

    def run(self, call: ScriptCall[T]) -> Asks[T]:
        primary = self._primary or (yield from self._find())
        try:
            return (yield from _evaluate(primary, call))
        except NoneFreeError:
            raise
        except STALE:
            self._primary = None
            raise

    def nodes(self) -> Asks[tuple[Node, ...]]:
        return ((yield from self._find()),)

    def _find(self) -> Asks[Node]:
        failed: BaseException | None = None
        known = False
        for sentinel in self._sentinels:
            try:
                named = yield Send(sentinel, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name))
                known = known or named is not None
                primary = _named(named)
                if primary is None or not (yield from _leads(primary)):
                    continue
            except Exception as error:  # noqa: BLE001 (whatever it says, the next may know better)
                failed = error
                continue
            others = (other for other in self._sentinels if other != sentinel)
            self._sentinels = (sentinel, *others)  # who answered is asked first the next time
            self._primary = primary
            return primary
        raise failed or StoreUnavailable("no primary" if known else "unknown name")


def _named(reply: object) -> Node | None:
    """Read whom a sentinel names; None: nobody."""
    match reply:
        case [bytes(host), bytes(port)]:
            return _node(host, int(port))
    return None


def _node(host: bytes, port: int) -> Node:
    """Read a server that another names; a port of 0 would be a path on this machine."""
    if not 0 < port <= _LAST_PORT:
        raise InvalidResponse
    return Node(host.decode(), port)


def _leads(node: Node) -> Asks[bool]:
    try:
        role = yield Send(node, ("ROLE",))
    except NoPermissionError:
        return True  # it can't be asked; a replica refuses the first write all the same
    return isinstance(role, list) and bool(role) and role[0] == b"master"


class _Cluster:
    """
    A cluster's nodes, by slot; the map is read from any node that answers, and again when it errs.

    The nodes of the address are never forgotten, so that it finds back after all were away.
    """

    spread = True

    def __init__(self, seeds: tuple[Node, ...]) -> None:
        self._seeds = seeds
        self._known: tuple[Node, ...] = ()
        self._primaries: tuple[Node, ...] = ()
        self._slots: list[Node | None] = []
        self._stale = True

    def run(self, call: ScriptCall[T]) -> Asks[T]:
        yield from self._refresh()
        slot = key_slot(call.keys[0].encode()) if call.keys else None
        node, asking = self._node_of(slot), False
        pause_s = _LONGEST_PAUSE_S / 100
        redirections = 0
        while True:
            try:
                return (yield from _evaluate(node, call, asking=asking))
            except TryAgainError:
                yield from _wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except AskError as error:
                redirections += 1
                if redirections > _REDIRECTIONS:
                    raise
                moved = isinstance(error, MovedError)
                named = (error.host or node.host).encode()
                node, asking = _node(named, error.port), not moved
                if moved:
                    self._stale = True
                    self._slots[error.slot_id] = node
            except NoneFreeError:
                raise
            except STALE:
                self._distrust(node)
                raise

    def nodes(self) -> Asks[tuple[Node, ...]]:
        self._stale = True
        yield from self._refresh()
        return self._primaries

    def _node_of(self, slot: int | None) -> Node:
        node = self._primaries[0] if slot is None else self._slots[slot]
        if node is None:
            self._distrust(self._known[0])  # who gave a map with holes
            raise StoreUnavailable("cluster down")
        return node

    def _distrust(self, node: Node) -> None:
        """Have the map read again, and of this node last: it may cost all the time there is."""
        self._stale = True
        known = dict.fromkeys((*self._known, *self._seeds))
        known.pop(node, None)
        self._known = (*known, node)

    def _refresh(self) -> Asks[None]:
        """Read the map again if it has erred; with none at all, a failure is the caller's."""
        if self._slots and not self._stale:
            return
        self._stale, read = False, False  # others go on with the old map meanwhile
        failed: BaseException = StoreUnavailable("cluster down")
        try:
            for node in dict.fromkeys((*self._known, *self._seeds)):
                try:
                    self._read(node, (yield Send(node, ("CLUSTER", "SLOTS"))))
                except Exception as error:  # noqa: BLE001 (whatever it says, the next may know)
                    failed = error
                else:
                    read = True
                    return
        finally:
            if not read:
                self._stale = True
        if not self._slots:
            raise failed

    def _read(self, asked: Node, ranges: Any) -> None:
        """Read CLUSTER SLOTS: first and last slot of each range, its primary, its replicas."""
        slots: list[Node | None] = [None] * VALKEY_CLUSTER_HASH_SLOTS
        primaries: dict[Node, None] = {}
        known = {asked: None}  # who answers is asked first the next time
        for first, last, *servers in ranges:
            nodes = [_node(host or asked.host.encode(), port) for host, port, *_ in servers]
            if not 0 <= first <= last < len(slots):
                raise InvalidResponse
            slots[first : last + 1] = nodes[:1] * (last + 1 - first)
            primaries[nodes[0]] = None
            known.update(dict.fromkeys(nodes))
        if not primaries:
            raise StoreUnavailable("cluster down")
        self._slots, self._primaries, self._known = slots, tuple(primaries), tuple(known)


def _wait(seconds: float) -> Asks[None]:
    """Wait for keys that are on the way; where time is over, it was they that kept us waiting."""
    try:
        yield Pause(seconds)
    except SILENCE:
        raise TryAgainError from None
