"""
The Valkey store: one EVALSHA a decision, and an answer or an error by the deadline.

A charge is never sent twice: there are no retries. The one second send is EVAL after NOSCRIPT,
where the server says itself that nothing ran. A connection that failed in any way is closed,
not reused.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from valkey.connection import Connection, ConnectionPool, parse_url
from valkey.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    ValkeyError,
)
from valkey.exceptions import ConnectionError as ValkeyConnectionError
from valkey.exceptions import TimeoutError as ValkeyTimeoutError

from authguard.checks import shown
from authguard.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from authguard._core.calls import ScriptCall

__all__ = ["ValkeyStore"]

T = TypeVar("T")

_NEVER: Final = float("inf")

#: An address has no options; how connections behave is the store's own affair.
_ADDRESS: Final = re.compile(r"(valkey|redis)://[^/?#\s]+(/[0-9]{0,5})?", re.ASCII)

#: A server that doesn't know a command echoes what follows: keys, and even AUTH's password.
_ECHO: Final = ", with args beginning with"

#: The word for each kind of failure, most special first; nothing of the server's text gets out.
_REASONS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (ValkeyTimeoutError, "timeout"),
    (TimeoutError, "timeout"),
    (BusyLoadingError, "loading"),
    (AuthenticationError, "authentication"),
    (NoPermissionError, "no permission"),
    (ReadOnlyError, "read only"),
    (OutOfMemoryError, "out of memory"),
    (NoScriptError, "script cache"),
    (InvalidResponse, "malformed reply"),
    (ResponseError, "error reply"),
    (ValkeyConnectionError, "connection"),
    (OSError, "connection"),
)


def _monotonic_s() -> float:
    # Not time.monotonic: freezegun stops that one, and a deadline must pass in frozen tests too.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class _Deadline(threading.local):
    """When the running decision of this thread must be over; between decisions, never."""

    ends_s: float = _NEVER

    def left_s(self, at_most_s: float) -> float:
        left = min(at_most_s, self.ends_s - _monotonic_s())
        if left <= 0:
            raise TimeoutError
        return left


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


class _DeadlineConnection(Connection):
    """A connection that is made, used and read within the running decision's deadline."""

    def __init__(
        self, *, deadline: _Deadline, connect_s: float, read_s: float, **settings: Any
    ) -> None:
        self._deadline = deadline
        self._connect_s = connect_s
        self._read_s = read_s
        super().__init__(**settings)  # type: ignore[no-untyped-call]

    @property
    def socket_connect_timeout(self) -> float:
        """What is left for the next address: a name can stand for many, asked one by one."""
        return self._deadline.left_s(self._connect_s)

    @socket_connect_timeout.setter
    def socket_connect_timeout(self, _: float | None) -> None:
        """Refuse the client library's default."""

    def _connect(self) -> _DeadlineSocket:
        sock = super()._connect()  # type: ignore[no-untyped-call]
        return _DeadlineSocket(sock, self._deadline, self._read_s)

    def read_response(self, *args: Any, **settings: Any) -> object:
        try:
            return super().read_response(*args, **settings)  # type: ignore[no-untyped-call]
        except ValkeyError as error:
            error.args = (str(error).partition(_ECHO)[0],)
            raise


class _Pool(ConnectionPool):
    """A process's connections, lent one at a time; who finds none free waits for a place."""

    def reset(self) -> None:
        """Start afresh; the client library calls this in a forked child, too."""
        self._places = threading.BoundedSemaphore(self.max_connections)
        self._era = object()
        super().reset()

    @contextmanager
    def lend(self, verb: str, wait_s: float) -> Iterator[Connection]:
        """Lend a connection; it is kept only if nothing went wrong while it was lent."""
        self._checkpid()
        places = self._places
        if not places.acquire(timeout=wait_s):
            raise TimeoutError
        try:
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
        finally:
            places.release()

    def drop_all(self) -> None:
        """Close the idle connections now, and those that are lent on their return."""
        self._era = object()
        self.disconnect(inuse_connections=False)


class ValkeyStore:
    """
    Decides on one Valkey (or Redis) server.

    Args:
        url: ``valkey://[user:password@]host:port/db``.
        deadline_ms: Longest time of a decision in all, in milliseconds; it covers the wait for a
            connection, connecting, sending and reading. A name is looked up outside of it, so
            give an address where the resolver can hang.
        connect_ms: Longest time to connect, in milliseconds.
        read_ms: Longest wait for any one reply, in milliseconds.
        connections: Most connections of a process; a decision that gets none in time is refused.

    Raises:
        ConfigurationError: AG010 or AG012, naming the setting and the mend.
    """

    def __init__(
        self,
        url: str,
        *,
        deadline_ms: int = 100,
        connect_ms: int | None = None,
        read_ms: int | None = None,
        connections: int = 64,
    ) -> None:
        half_ms = max(1, deadline_ms // 2) if type(deadline_ms) is int else 50
        settings = {
            "deadline_ms": deadline_ms,
            "connect_ms": half_ms if connect_ms is None else connect_ms,
            "read_ms": half_ms if read_ms is None else read_ms,
            "connections": connections,
        }
        for name, value in settings.items():
            if type(value) is not int or not 1 <= value <= 60_000:  # noqa: PLR2004 (a minute)
                raise ConfigurationError(
                    "AG012",
                    name,
                    f"{shown(value)} is out of range",
                    "take a whole number, 1 to 60000",
                )
        self._deadline_s = deadline_ms / 1000
        self._deadline = _Deadline()
        self._pool = _Pool(
            connection_class=_DeadlineConnection,
            max_connections=connections,
            deadline=self._deadline,
            connect_s=settings["connect_ms"] / 1000,
            read_s=settings["read_ms"] / 1000,
            lib_name=None,
            lib_version=None,
            **_server(url),
        )

    def run(self, call: ScriptCall[T]) -> T:
        """Run a call; see :meth:`authguard.stores.base.Store.run`."""
        with self._lent(call.script.verb) as connection:
            return call.read(_evaluate(connection, call))

    def ask(self, *command: str) -> object:
        """
        Ask the server about itself, such as ``INFO``; for looking it over, never for a decision.

        Args:
            command: The command and what follows it.

        Returns:
            The reply as it came: bytes, a whole number, or a list of such.

        Raises:
            StoreUnavailable: If there is no clear answer within the deadline. Its reason is ``no
                permission`` or ``error reply`` where the server itself refuses the command.
        """
        with self._lent(command[0]) as connection:
            connection.send_command(*command)
            return connection.read_response()

    @contextmanager
    def _lent(self, verb: str) -> Iterator[Connection]:
        """Lend a connection until the deadline; whatever goes wrong is an outage."""
        self._deadline.ends_s = _monotonic_s() + self._deadline_s
        try:
            with self._pool.lend(verb, self._deadline_s) as connection:
                yield connection
        except StoreUnavailable:
            raise
        except Exception as error:  # the client library raises more than its own on a broken stream
            if isinstance(error, ReadOnlyError):
                self._pool.drop_all()  # the node was demoted: all that lead to it are stale
            raise StoreUnavailable(_reason(error)) from error
        finally:
            self._deadline.ends_s = _NEVER

    def close(self) -> None:
        """Close all connections; those of running decisions when they are over."""
        self._pool.drop_all()


def _evaluate(connection: Connection, call: ScriptCall[Any]) -> object:
    rest = (len(call.keys), *call.keys, *call.args)
    connection.send_command("EVALSHA", call.script.sha1, *rest)
    try:
        return connection.read_response()
    except NoScriptError:
        connection.send_command("EVAL", call.script.text, *rest)
        return connection.read_response()


def _reason(error: BaseException) -> str:
    return next((word for kind, word in _REASONS if isinstance(error, kind)), "client failure")


def _server(url: str) -> dict[str, Any]:
    """Read host, port, database and credentials."""
    parts: dict[str, Any] = {}
    if isinstance(url, str) and _ADDRESS.fullmatch(url):
        with suppress(ValueError):
            parts = parse_url(url)
            parts.get("host", "").encode("idna")  # what no resolver can look up must fail here
            return parts
    raise ConfigurationError(
        "AG010",
        "store",
        "the address can't be used (its text may hold a password and is not shown)",
        "write valkey://[user:password@]host:port/database",
    )
