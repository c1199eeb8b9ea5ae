"""
The Valkey store for asyncio: routes, deadlines and breaker as in ``valkey.py``, with ``await``.

A task may be cancelled at every ``await``. What it had lent is dropped, since nobody knows what
would come back on it next; its place in the pool is free again; the call may have run. Nothing is
awaited on the way out, so nothing can interrupt that.
"""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar

from valkey.asyncio.connection import Connection, DefaultParser
from valkey.exceptions import ConnectionError as ValkeyConnectionError
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
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncGenerator, Iterator, Mapping
    from types import TracebackType

    from authguard._core.calls import ScriptCall
    from authguard.stores._address import Node
    from authguard.stores._routes import Asks, Send
    from authguard.stores._settings import Settings
    from authguard.stores.valkey import ValkeyStore

__all__ = ["AsyncValkeyStore"]

T = TypeVar("T")

_NEVER: Final = float("inf")

_NONE: Final[tuple[object, float]] = (None, _NEVER)


class _Parser(DefaultParser):  # type: ignore[valid-type, misc]  # one of two, by what is installed
    """Reads replies; knows what clusters and replicas say."""

    EXCEPTION_CLASSES = DefaultParser.EXCEPTION_CLASSES | OWN_ERRORS


class _Connection(Connection):
    """A connection without times of its own: whoever awaits it sets them."""

    def __init__(self, settings: Settings, node: Node) -> None:
        self._settings = settings
        self._node = node
        place = settings.of(node)
        self._path: str | None = place.pop("path", None)
        super().__init__(
            parser_class=_Parser,
            socket_timeout=None,
            lib_name=None,
            lib_version=None,
            **place,
        )

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**super()._connection_arguments(), "ssl": self._settings.tls}

    async def _connect(self) -> None:
        if self._path is None:
            await super()._connect()  # type: ignore[no-untyped-call]
        else:
            self._reader, self._writer = await asyncio.open_unix_connection(self._path)

    async def read_response(self, *args: Any, **settings: Any) -> object:
        try:
            return await super().read_response(*args, **settings)
        except ValkeyError as error:
            raise without_echo(error)  # noqa: B904 (the same error)

    async def make_ready(self) -> None:
        """Connect, unless it is connected and nothing has come on it that nobody asked for."""
        if self.is_connected:
            try:
                if not (self._has_come() or await self.can_read_destructive()):  # type: ignore[no-untyped-call]
                    return
            except (ValkeyConnectionError, OSError):
                pass  # the server has closed it: that is no failure yet
            self.drop()
        await self.connect()  # type: ignore[no-untyped-call]

    def _has_come(self) -> bool:
        """Ask the socket itself: a loop that was held up has not read what has come meanwhile."""
        if self._writer is None:
            return False
        waiting = select.poll()
        waiting.register(self._writer.get_extra_info("socket"), select.POLLIN)
        return bool(waiting.poll(0))

    async def disconnect(self, nowait: bool = False) -> None:  # noqa: ARG002 (the client library's)
        """Do not wait for a server that may be silent, nor in a task that is being cancelled."""
        self.drop()

    def drop(self) -> None:
        """Close it at once, whatever is still to be sent."""
        self._parser.on_disconnect()
        if self._writer is not None:
            with suppress(RuntimeError):  # its loop is closed
                self._writer.transport.abort()
        self._reader = self._writer = None


class _LateError(TimeoutError):
    """The loop was late itself, so the answer may be there, unread: that says no more of it."""


#: A timer that goes off so much too late was kept from it by the loop: a plain wait of an idle
#: loop is late by a tenth of that.
_LATE_S: Final = 0.005


class _Limit:
    """A time limit that tells a silent server from a loop that something else has held up."""

    def __init__(self, seconds: float) -> None:
        self._late_s = asyncio.get_running_loop().time() + seconds + _LATE_S
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            if asyncio.get_running_loop().time() > self._late_s:
                raise _LateError from None
            raise


class _Pool:
    """A loop's connections to one server, lent one at a time; who finds none free waits."""

    def __init__(self, settings: Settings, node: Node, breaker: Breaker) -> None:
        self.breaker = breaker
        self._settings = settings
        self._node = node
        self._places = asyncio.Semaphore(settings.connections)
        self._waiting = 0
        self._idle: list[_Connection] = []
        self._era = object()

    async def wait(self, left_s: float) -> None:
        """Take a place; who has taken one borrows at once."""
        if self._waiting >= self._settings.waiting:
            raise CrowdedError
        self._waiting += 1
        try:
            async with asyncio.timeout(left_s):
                await self._places.acquire()
        except TimeoutError:
            raise NoneFreeError from None
        finally:
            self._waiting -= 1

    @contextmanager
    def lend(self) -> Iterator[_Connection]:
        """Lend a connection; it is kept only if nothing went wrong while it was lent."""
        try:
            era = self._era
            connection = self._idle.pop() if self._idle else _Connection(self._settings, self._node)
            sound = False
            try:
                yield connection
                sound = era is self._era
            finally:
                if sound:
                    self._idle.append(connection)
                else:
                    connection.drop()
        finally:
            self._places.release()

    def drop_all(self) -> None:
        """Close the idle connections now, and those that are lent on their return."""
        self._era = object()
        while self._idle:
            self._idle.pop().drop()


class _Loop:
    """What belongs to one loop; it is closed with it, whether anybody says so or not."""

    def __init__(self) -> None:
        self.pools: dict[Node, _Pool] = {}
        self._end = self._closed_at_its_end(self.pools)

    async def begin(self) -> None:
        """Let the loop know what is to be ended before it closes."""
        await anext(self._end)

    @staticmethod
    async def _closed_at_its_end(pools: dict[Node, _Pool]) -> AsyncGenerator[None, None]:
        # Generators are what a loop ends before it closes. It must not hold the guard itself.
        try:
            yield
        finally:
            for pool in pools.values():
                pool.drop_all()


class AsyncValkeyStore(RoutedStore):
    """
    Decides on a Valkey (or Redis), awaited; see :class:`authguard.stores.valkey.ValkeyStore`.

    Its connections belong to the loop that runs: each loop has its own.

    Args:
        url: The address.
        settings: The arguments of ``ValkeyStore``.

    Raises:
        ConfigurationError: AG010, AG012 or AG058, naming the setting and the mend.
    """

    def _prepare(self) -> None:
        # Whose decision ends when: a task that is begun within one inherits its context.
        self._running: ContextVar[tuple[object, float]] = ContextVar("running", default=_NONE)
        self._loops: dict[AbstractEventLoop, _Loop] = {}
        self._breakers: dict[tuple[int, Node], Breaker] = {}  # a forked child has its own

    @contextmanager
    def one_deadline(self) -> Iterator[None]:
        """Let all calls of a block share one deadline, from now on, in this task."""
        if self._ends_s != _NEVER:
            yield
            return
        ends_s = asyncio.get_running_loop().time() + self._settings.deadline_s
        self._running.set((asyncio.current_task(), ends_s))
        try:
            yield
        finally:
            self._running.set(_NONE)

    @property
    def _ends_s(self) -> float:
        """When the running decision of this task must be over; between decisions, never."""
        task, ends_s = self._running.get()
        return ends_s if task is asyncio.current_task() else _NEVER

    async def run(self, call: ScriptCall[T]) -> T:
        """Run a call; see :meth:`authguard.stores.base.AsyncStore.run`."""
        return await self._drive(self._route.run(call))

    async def nodes(self) -> tuple[Node, ...]:
        """Find the servers that decide; see :meth:`authguard.stores.valkey.ValkeyStore.nodes`."""
        return await self._drive(self._route.nodes())

    async def ask(self, *command: str, node: Node | None = None) -> object:
        """Ask a server about itself; see :meth:`authguard.stores.valkey.ValkeyStore.ask`."""
        asked = (await self.nodes())[0] if node is None else node
        return await self._drive(question(asked, command))

    def waiting(self) -> ValkeyStore:
        """Give a store that waits, with the same address and settings; close it after use."""
        from authguard.stores.valkey import ValkeyStore  # noqa: PLC0415 (only if it is used)

        return ValkeyStore._like(self)  # noqa: SLF001 (the other colour)

    async def close(self) -> None:
        """Close this loop's connections; those of running decisions when they are over."""
        for pool in (await self._here()).values():
            pool.drop_all()

    async def _drive(self, asks: Asks[T]) -> T:
        """Await what a route asks for; whatever goes wrong is an outage."""
        with self.one_deadline():
            try:
                it = next(asks)
                while True:
                    try:
                        reply = await self._do(it)
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
            finally:
                asks.close()

    def _left_s(self, at_most_s: float = _NEVER) -> float:
        left_s = min(at_most_s, self._ends_s - asyncio.get_running_loop().time())
        if left_s <= 0:
            raise TimeoutError
        return left_s

    async def _do(self, it: Send | Pause) -> object:
        if isinstance(it, Pause):
            if self._left_s() <= self._settings.reserve_s + it.seconds:
                raise TimeoutError
            await asyncio.sleep(it.seconds)
            return None
        return await self._send(it)

    async def _send(self, it: Send) -> object:
        """Send one command and read its reply; tell the breaker what came of it."""
        pool = await self._pool_of(it.node)
        pool.breaker.enter()
        begun_s = _NEVER  # while it waits for a place the server has not been asked
        try:
            await pool.wait(self._left_s())
            begun_s = monotonic_s()
            reply = await self._exchange(pool, it)
        except (NoneFreeError, _LateError):
            raise
        except SILENCE:
            if monotonic_s() - begun_s >= self._settings.patience_s:  # else it had no chance
                pool.breaker.silent()
            raise
        except Exception as error:
            pool.breaker.answered()
            if isinstance(error, ReadOnlyError):
                pool.drop_all()  # the node was demoted: all that lead to it are stale
            raise
        pool.breaker.answered()
        return reply

    async def _exchange(self, pool: _Pool, it: Send) -> object:
        refused: Exception
        with pool.lend() as connection:
            async with _Limit(self._left_s(self._settings.connect_s)):
                await connection.make_ready()
            async with _Limit(self._left_s(self._settings.read_s)):
                if it.asking:
                    await connection.send_command("ASKING")
                    await connection.read_response()
                sent_s = monotonic_s()
                last = (
                    (self._last_moments.of(it.node, sent_s + self._left_s()),) if it.dated else ()
                )
                await connection.send_command(*it.command, *last)
                try:
                    reply = await connection.read_response()
                    if it.dated:
                        self._last_moments.heard(it.node, reply, sent_s)
                    return it.read(reply)
                except SOUND as error:
                    refused = error
        raise refused

    async def _here(self) -> dict[Node, _Pool]:
        """Give the pools of the running loop; forget those of loops that are closed."""
        running = asyncio.get_running_loop()
        if running not in self._loops:
            for loop in [loop for loop in list(self._loops) if loop.is_closed()]:
                self._loops.pop(loop, None)  # another thread may be about it, too
            self._loops[running] = here = _Loop()
            await here.begin()
        return self._loops[running].pools

    async def _pool_of(self, node: Node) -> _Pool:
        pools = await self._here()
        if node not in pools:
            # A silent server is silent for all loops, and an app may take one for each request.
            fresh = Breaker(self._settings.pause_s, monotonic_s)
            breaker = self._breakers.setdefault((os.getpid(), node), fresh)
            pools[node] = _Pool(self._settings, node, breaker)
        return pools[node]
