"""
The Valkey store: one EVALSHA a decision, and an answer or an error by the deadline.

A charge is never sent twice: there are no retries, and what is sent again is what a server says
itself has not run (``_routes.py``). A connection that failed in any way is closed, not reused.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from valkey.connection import Connection, ConnectionPool, DefaultParser, UnixDomainSocketConnection
from valkey.exceptions import ReadOnlyError, ValkeyError

from authguard.errors import StoreUnavailable
from authguard.stores._breaker import Breaker
from authguard.stores._failures import (
    OWN_ERRORS,
    SILENCE,
    SOUND,
    CrowdedError,
    NoneFreeError,
    reason,
    without_echo,
)
from authguard.stores._routed import RoutedStore
from authguard.stores._routes import Pause, question
from authguard.stores._settings import monotonic_s

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from authguard._core.calls import ScriptCall
    from authguard.stores._address import Node
    from authguard.stores._routes import Asks, Send
    from authguard.stores._settings import Settings

__all__ = ["ValkeyStore"]

T = TypeVar("T")

_NEVER: Final = float("inf")


class _Deadline(threading.local):
    """When the running decision of this thread must be over; between decisions, never."""

    ends_s: float = _NEVER
    granted_s: float = 0.0  # how long the last wait could be: silence is a server's for so long

    def left_s(self, at_most_s: float) -> float:
        self.granted_s = left_s = min(at_most_s, self.ends_s - monotonic_s())
        if left_s <= 0:
            raise TimeoutError
        return left_s


class _DeadlineSocket:
    """A socket whose every send and receive ends by the deadline, however slowly bytes drip."""

    def __init__(self, sock: socket.socket, deadline: _Deadline, read_s: float) -> None:
        self._sock = sock
        self._deadline = deadline
        self._read_s = read_s
        self._polling = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, value: float | None) -> None:
        self._polling = value == 0
        self._sock.settimeout(value)

    def _bound(self) -> socket.socket:
        if not self._polling:
            self._sock.settimeout(self._deadline.left_s(self._read_s))
        return self._sock

    def sendall(self, data: bytes) -> None:
        self._bound().sendall(data)

    def recv(self, size: int) -> bytes:
        return self._bound().recv(size)

    def recv_into(self, buffer: bytearray) -> int:
        return self._bound().recv_into(buffer)


class _Parser(DefaultParser):  # type: ignore[valid-type, misc]  # one of two, by what is installed
    """Reads replies; knows what clusters and replicas say."""

    EXCEPTION_CLASSES = DefaultParser.EXCEPTION_CLASSES | OWN_ERRORS


class _Connection(Connection):
    """A connection that is made, used and read within the running decision's deadline."""

    def __init__(self, *, deadline: _Deadline, settings: Settings, **named: Any) -> None:
        self._deadline = deadline
        self._settings = settings
        named = {"parser_class": _Parser, "lib_name": None, "lib_version": None} | named
        super().__init__(**named)  # type: ignore[no-untyped-call]

    @property
    def socket_connect_timeout(self) -> float:
        """What is left for the next address: a name can stand for many, asked one by one."""
        return self._deadline.left_s(self._settings.connect_s)

    @socket_connect_timeout.setter
    def socket_connect_timeout(self, _: float | None) -> None:
        """Refuse the client library's default."""

    def _connect(self) -> _DeadlineSocket:
        sock = super()._connect()  # type: ignore[no-untyped-call]
        context = self._settings.tls
        if context is not None:
            # The handshake as a whole, too: its time is taken once, not for each of its reads.
            sock.settimeout(self.socket_connect_timeout)
            try:
                sock = context.wrap_socket(sock, server_hostname=self.host)
            except BaseException:
                sock.close()
                raise
        return _DeadlineSocket(sock, self._deadline, self._settings.read_s)

    def read_response(self, *args: Any, **settings: Any) -> object:
        try:
            return super().read_response(*args, **settings)  # type: ignore[no-untyped-call]
        except ValkeyError as error:
            raise without_echo(error)  # noqa: B904 (the same error)


class _UnixConnection(_Connection):
    """The same by a UNIX socket."""

    def __init__(self, *, path: str, **named: Any) -> None:
        self.path = path
        super().__init__(**named)

    repr_pieces = UnixDomainSocketConnection.repr_pieces
    _host_error = UnixDomainSocketConnection._host_error  # noqa: SLF001 (of its own kind)

    def _connect(self) -> _DeadlineSocket:
        connect = UnixDomainSocketConnection._connect  # noqa: SLF001 (of its own kind)
        sock = connect(self)  # type: ignore[arg-type, no-untyped-call]
        return _DeadlineSocket(sock, self._deadline, self._settings.read_s)


class _Pool(ConnectionPool):
    """A process's connections to one server, lent one at a time; who finds none free waits."""

    def __init__(self, settings: Settings, deadline: _Deadline, node: Node) -> None:
        self._settings = settings
        super().__init__(
            connection_class=_Connection if node.port else _UnixConnection,
            max_connections=settings.connections,
            deadline=deadline,
            settings=settings,
            **settings.of(node),
        )

    def reset(self) -> None:
        """Start afresh; the client library calls this in a forked child, too."""
        self._places = threading.BoundedSemaphore(self.max_connections)
        self._room = threading.BoundedSemaphore(self.max_connections + self._settings.waiting)
        self._era = object()
        self._breaker = Breaker(self._settings.pause_s, monotonic_s)
        super().reset()

    @property
    def breaker(self) -> Breaker:
        """The server's breaker; a forked child has its own, closed."""
        self._checkpid()
        return self._breaker

    @contextmanager
    def lend(self, verb: str, wait_s: float) -> Iterator[Connection]:
        """Lend a connection; it is kept only if nothing went wrong while it was lent."""
        self._checkpid()
        room, places = self._room, self._places
        if not room.acquire(blocking=False):
            raise CrowdedError
        try:
            if not places.acquire(timeout=wait_s):
                raise NoneFreeError
            try:
                with self._kept_if_sound(verb) as connection:
                    yield connection
            finally:
                places.release()
        finally:
            room.release()

    @contextmanager
    def _kept_if_sound(self, verb: str) -> Iterator[Connection]:
        era = self._era
        connection = self.get_connection(verb)
        sound = False
        try:
            yield connection
            sound = era is self._era
        finally:
            if not sound:
                connection.disconnect()
            self.release(connection)

    def drop_all(self) -> None:
        """Close the idle connections now, and those that are lent on their return."""
        self._era = object()
        self.disconnect(inuse_connections=False)


class ValkeyStore(RoutedStore):
    """
    Decides on a Valkey (or Redis): one server, the primary of sentinels, or a cluster.

    Args:
        url: ``valkey://[user:password@]host:port/db``, or another address of ``docs/store.md``.
        deadline_ms: Longest time of a decision in all, in milliseconds; it covers the wait for a
            connection, connecting, sending and reading, on all servers that it needs. A name is
            looked up outside of it, so give an address where the resolver can hang.
        connect_ms: Longest time to connect, in milliseconds; half the deadline without it.
        read_ms: Longest wait for any one reply, in milliseconds; half the deadline without it.
        connections: Most connections of a process to one server; a decision that gets none in time
            is refused.
        breaker_ms: After five timeouts in a row a server is left alone, and asked by one request
            in so many milliseconds; the others are refused at once.
        tls_ca: A file of the authorities to trust, under TLS; those of the system without it.
        tls_certificate: A file with the client's own certificate, where the server wants one.
        tls_key: A file with its key, if that is not in the same one.
        sentinel_username: Whom sentinels know us as, if they ask.
        sentinel_password: The password for them.

    Attributes:
        address: What the address says.
        kind: How the server is found.

    Raises:
        ConfigurationError: AG010, AG012 or AG058, naming the setting and the mend.
    """

    def _prepare(self) -> None:
        self._deadline = _Deadline()
        self._pools: dict[Node, _Pool] = {}
        self._pool = self._pool_of(self.address.nodes[0])

    @contextmanager
    def one_deadline(self) -> Iterator[None]:
        """Let all calls of a block share one deadline, from now on."""
        if self._deadline.ends_s != _NEVER:
            yield
            return
        self._deadline.ends_s = monotonic_s() + self._settings.deadline_s
        try:
            yield
        finally:
            self._deadline.ends_s = _NEVER

    def run(self, call: ScriptCall[T]) -> T:
        """Run a call; see :meth:`authguard.stores.base.Store.run`."""
        return self._drive(self._route.run(call))

    def nodes(self) -> tuple[Node, ...]:
        """
        Find the servers that decide: one, or all primaries of a cluster.

        Raises:
            StoreUnavailable: If nobody can tell within the deadline.
        """
        return self._drive(self._route.nodes())

    def ask(self, *command: str, node: Node | None = None) -> object:
        """
        Ask a server about itself, such as ``INFO``; for looking it over, never for a decision.

        Args:
            command: The command and what follows it.
            node: One of :meth:`nodes`; the first of them without it.

        Returns:
            The reply as it came: bytes, a whole number, or a list of such.

        Raises:
            StoreUnavailable: If there is no clear answer within the deadline. Its reason is ``no
                permission`` or ``error reply`` where the server itself refuses the command.
        """
        return self._drive(question(self.nodes()[0] if node is None else node, command))

    def close(self) -> None:
        """Close all connections; those of running decisions when they are over."""
        for pool in list(self._pools.values()):
            pool.drop_all()

    def _drive(self, asks: Asks[T]) -> T:
        """Run what a route asks for; whatever goes wrong is an outage."""
        if self._deadline.ends_s == _NEVER:
            with self.one_deadline():
                return self._drive(asks)
        try:
            it = next(asks)
            while True:
                try:
                    reply = self._do(it)
                except Exception as error:  # noqa: BLE001 (a broken stream raises anything)
                    it = asks.throw(error)
                else:
                    it = asks.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        except StoreUnavailable:
            raise
        except Exception as error:
            raise StoreUnavailable(reason(error)) from error

    def _do(self, it: Send | Pause) -> object:
        if isinstance(it, Pause):
            if self._deadline.left_s(_NEVER) <= self._settings.reserve_s + it.seconds:
                raise TimeoutError
            time.sleep(it.seconds)
            return None
        return self._send(it)

    def _send(self, it: Send) -> object:
        """Send one command and read its reply; tell the breaker what came of it."""
        pool = self._pool_of(it.node)
        breaker = pool.breaker
        breaker.enter()
        try:
            reply = self._exchange(pool, it)
        except NoneFreeError:
            raise
        except SILENCE:
            if self._deadline.granted_s >= self._settings.patience_s:  # else it had no chance
                breaker.silent()
            raise
        except Exception as error:
            breaker.answered()
            if isinstance(error, ReadOnlyError):
                pool.drop_all()  # the node was demoted: all that lead to it are stale
            raise
        breaker.answered()
        return reply

    def _exchange(self, pool: _Pool, it: Send) -> object:
        refused: Exception
        with pool.lend(str(it.command[0]), self._deadline.left_s(_NEVER)) as connection:
            if it.asking:
                connection.send_command("ASKING")
                connection.read_response()
            sent_s = monotonic_s()
            last = (self._last_moments.of(it.node, self._deadline.ends_s),) if it.dated else ()
            connection.send_command(*it.command, *last)
            try:
                reply = connection.read_response()
                if it.dated:
                    self._last_moments.heard(it.node, reply, sent_s)
                return it.read(reply)
            except SOUND as error:
                refused = error
        raise refused

    def _pool_of(self, node: Node) -> _Pool:
        pool = self._pools.get(node)
        if pool is None:
            made = _Pool(self._settings, self._deadline, node)
            pool = self._pools.setdefault(node, made)
        return pool
