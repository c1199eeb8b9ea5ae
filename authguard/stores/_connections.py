"""
A process's connections to one server, and the time that the running decision leaves them.

The client library connects, logs in and closes; what is sent and read after that goes the short
way, since it is on the path of every decision: one ``send`` and one ``recv``, and before them one
``poll`` that shows whether the server has closed an idle connection or said what nobody asked for.
"""

from __future__ import annotations

import os
import select
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Self

from libvalkey import Reader, pack_command
from valkey.connection import Connection as ClientConnection
from valkey.connection import DefaultParser, UnixDomainSocketConnection
from valkey.exceptions import ConnectionError as ValkeyConnectionError
from valkey.exceptions import InvalidResponse, ValkeyError

from authguard.stores._breaker import Breaker
from authguard.stores._failures import OWN_ERRORS, CrowdedError, NoneFreeError, without_echo
from authguard.stores._settings import monotonic_s

if TYPE_CHECKING:
    import socket

    from authguard.stores._address import Node
    from authguard.stores._settings import Settings

__all__ = ["Connection", "Deadline", "Deadlines", "Pool"]

NEVER: Final = float("inf")

#: What the reader gives while a reply has not come whole.
_PARTIAL: Final = object()

#: Bytes asked for at once; a decision's reply has a few hundred.
_CHUNK: Final = 4_096


class Deadline:
    """
    When the running decision of a thread must be over; between decisions, never.

    As a context manager it is the time of one decision; one inside of another has that one's.

    Args:
        length_s: How long a decision may take, in seconds.

    Attributes:
        ends_s: When it must be over.
        granted_s: How long the last wait could be: silence is a server's for so long.
    """

    __slots__ = ("_depth", "_length_s", "ends_s", "granted_s")

    def __init__(self, length_s: float) -> None:
        self.ends_s = NEVER
        self.granted_s = 0.0
        self._length_s = length_s
        self._depth = 0

    def __enter__(self) -> Self:
        if not self._depth:
            self.ends_s = monotonic_s() + self._length_s
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self.ends_s = NEVER

    def left_s(self, at_most_s: float = NEVER) -> float:
        """Give what is left, and no more than so much; raises ``TimeoutError`` if nothing is."""
        self.granted_s = left_s = min(at_most_s, self.ends_s - monotonic_s())
        if left_s <= 0:
            raise TimeoutError
        return left_s


class Deadlines(threading.local):
    """Each thread's own deadline, as ``own``."""

    def __init__(self, length_s: float) -> None:
        self.own = Deadline(length_s)


class _DeadlineSocket:
    """A socket whose every send and receive ends by the deadline, however slowly bytes drip."""

    def __init__(self, sock: socket.socket, deadline: Deadline, read_s: float) -> None:
        self.deadline = deadline
        self._sock = sock
        self._read_s = read_s
        self._timeout_s: float | None = -1.0  # what it is set to: setting it is a system call
        self._polling = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, value: float | None) -> None:
        self._polling = value == 0
        self._set(value)

    def _set(self, value: float | None) -> None:
        if value != self._timeout_s:
            self._timeout_s = value
            self._sock.settimeout(value)

    def _bound(self) -> socket.socket:
        if not self._polling:
            self._set(self.deadline.left_s(self._read_s))
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


class Connection(ClientConnection):
    """
    A connection that is made, used and read within the running decision's deadline.

    Attributes:
        deadline: That of whoever has borrowed it.
        era: Of which of its pool's times it is; those of an earlier one are not kept.
    """

    def __init__(self, *, deadline: Deadline, settings: Settings, **named: Any) -> None:
        self.deadline = deadline
        self._settings = settings
        self.era: object = None
        self._line: _DeadlineSocket
        self._waiting: select.poll
        self._replies: Reader
        named = {"parser_class": _Parser, "lib_name": None, "lib_version": None} | named
        super().__init__(**named)  # type: ignore[no-untyped-call]

    @property
    def socket_connect_timeout(self) -> float:
        """What is left for the next address: a name can stand for many, asked one by one."""
        return self.deadline.left_s(self._settings.connect_s)

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
        self._line = _DeadlineSocket(sock, self.deadline, self._settings.read_s)
        return self._line

    def read_response(self, *args: Any, **settings: Any) -> object:
        """Read a reply of the login."""
        try:
            return super().read_response(*args, **settings)  # type: ignore[no-untyped-call]
        except ValkeyError as error:
            raise without_echo(error)  # noqa: B904 (the same error)

    def make_ready(self) -> None:
        """Connect, unless it is connected and nothing has come on it that nobody asked for."""
        if self._sock is not None:
            if not self._waiting.poll(0) and not self._replies.has_data():
                self._line.deadline = self.deadline
                return
            self.disconnect()  # type: ignore[no-untyped-call]
        self.connect()  # type: ignore[no-untyped-call]
        if self.can_read():  # type: ignore[no-untyped-call]
            raise ValkeyConnectionError  # it says goodbye, such as where too many are connected
        self._waiting = select.poll()
        self._waiting.register(self._line.fileno(), select.POLLIN)
        self._replies = Reader(
            protocolError=InvalidResponse,
            replyError=_Parser.parse_error,
            notEnoughData=_PARTIAL,
        )

    def ask(self, command: tuple[Any, ...]) -> object:
        """
        Send a command and read its reply.

        Raises:
            ValkeyError: What the server says is an error, or no reply at all.
            TimeoutError: It did not come in time.
            OSError: The connection is broken.
        """
        self._line.sendall(pack_command(command))
        reply: object = _PARTIAL
        while reply is _PARTIAL:
            data = self._line.recv(_CHUNK)
            if not data:
                raise ValkeyConnectionError
            self._replies.feed(data)
            reply = self._replies.gets()
        if isinstance(reply, ValkeyError):
            raise without_echo(reply)
        return reply


class _UnixConnection(Connection):
    """The same by a UNIX socket."""

    def __init__(self, *, path: str, **named: Any) -> None:
        self.path = path
        super().__init__(**named)

    repr_pieces = UnixDomainSocketConnection.repr_pieces
    _host_error = UnixDomainSocketConnection._host_error  # noqa: SLF001 (of its own kind)

    def _connect(self) -> _DeadlineSocket:
        connect = UnixDomainSocketConnection._connect  # noqa: SLF001 (of its own kind)
        sock = connect(self)  # type: ignore[arg-type, no-untyped-call]
        self._line = _DeadlineSocket(sock, self.deadline, self._settings.read_s)
        return self._line


class Pool:
    """
    A process's connections to one server, lent one at a time; who finds none free waits.

    Attributes:
        pid: The process that they belong to; a forked child makes a pool of its own.
        breaker: The server's breaker.
        named: What connections are made from.
    """

    def __init__(self, settings: Settings, node: Node) -> None:
        self.pid = os.getpid()
        self.breaker = Breaker(settings.pause_s, monotonic_s)
        self.named: dict[str, Any] = settings.of(node)
        self._kind = Connection if node.port else _UnixConnection
        self._settings = settings
        self._idle: list[Connection] = []
        self._era = object()
        self._places: SimpleQueue[None] = SimpleQueue()
        for _ in range(settings.connections):
            self._places.put(None)
        self._room = threading.BoundedSemaphore(settings.waiting)

    def borrow(self, deadline: Deadline) -> Connection:
        """
        Take a connection; it is to be made ready.

        Args:
            deadline: When whoever takes it must be done.

        Raises:
            NoneFreeError: None became free in time.
            CrowdedError: So many wait already that waiting would be in vain.
        """
        try:
            self._places.get_nowait()
        except Empty:
            self._wait(deadline)
        era = self._era  # first: what is dropped from here on must not be kept
        try:
            connection = self._idle.pop()
        except IndexError:
            try:
                connection = self._kind(deadline=deadline, settings=self._settings, **self.named)
            except BaseException:
                self._places.put(None)
                raise
        connection.era, connection.deadline = era, deadline
        return connection

    def give_back(self, connection: Connection, *, sound: bool) -> None:
        """Take it back; it is kept only if nothing went wrong while it was lent."""
        try:
            if sound and connection.era is self._era:
                self._idle.append(connection)
            else:
                connection.disconnect()  # type: ignore[no-untyped-call]
        finally:
            self._places.put(None)

    @property
    def lent(self) -> int:
        """How many are lent now."""
        return self._settings.connections - self._places.qsize()

    def _wait(self, deadline: Deadline) -> None:
        if not self._room.acquire(blocking=False):
            raise CrowdedError
        try:
            self._places.get(timeout=deadline.left_s())
        except Empty:
            raise NoneFreeError from None
        finally:
            self._room.release()

    def drop_all(self) -> None:
        """Close the idle connections now, and those that are lent on their return."""
        self._era = object()
        while self._idle:
            self._idle.pop().disconnect()  # type: ignore[no-untyped-call]
