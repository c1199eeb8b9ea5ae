"""
The Valkey store: one EVALSHA a decision, and an answer or an error by the deadline.

A charge is never sent twice: there are no retries, and what is sent again is what a server says
itself has not run (``_routes.py``). A connection that failed in any way is closed, not reused.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

from valkey.exceptions import ReadOnlyError

from authguard.errors import StoreUnavailable
from authguard.stores._connections import Deadlines, Pool
from authguard.stores._failures import SILENCE, SOUND, NoneFreeError, reason
from authguard.stores._routed import RoutedStore
from authguard.stores._routes import Pause, question
from authguard.stores._settings import monotonic_s

if TYPE_CHECKING:
    from authguard._core.calls import ScriptCall
    from authguard.stores._address import Node
    from authguard.stores._connections import Deadline
    from authguard.stores._routes import Asks, Send

__all__ = ["ValkeyStore"]

T = TypeVar("T")


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
        self._deadlines = Deadlines(self._settings.deadline_s)
        self._pools: dict[Node, Pool] = {}

    def one_deadline(self) -> Deadline:
        """Let all calls of a block share one deadline, from now on."""
        return self._deadlines.own

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
                permission``, ``error reply`` or another of ``docs/store.md`` where the server
                itself refuses the command.
        """
        return self._drive(question(self.nodes()[0] if node is None else node, command))

    def close(self) -> None:
        """Close all connections; those of running decisions when they are over."""
        for pool in list(self._pools.values()):
            pool.drop_all()

    def _drive(self, asks: Asks[T]) -> T:
        """Run what a route asks for; whatever goes wrong is an outage."""
        with self._deadlines.own as deadline:
            try:
                it = next(asks)
                while True:
                    try:
                        if isinstance(it, Pause):
                            reply = self._pause(it, deadline)
                        else:
                            reply = self._send(it, deadline)
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

    def _pause(self, it: Pause, deadline: Deadline) -> object:
        if deadline.left_s() <= self._settings.reserve_s + it.seconds:
            raise TimeoutError
        time.sleep(it.seconds)
        return None

    def _send(self, it: Send, deadline: Deadline) -> object:
        """Send one command and read its reply; tell the breaker what came of it."""
        pool = self._pool_of(it.node)
        breaker = pool.breaker
        breaker.enter()
        try:
            reply = self._exchange(pool, it, deadline)
        except NoneFreeError:
            raise
        except SILENCE:
            if deadline.granted_s >= self._settings.patience_s:  # else it had no chance
                breaker.silent()
            raise
        except Exception as error:
            breaker.answered()
            if isinstance(error, ReadOnlyError):
                pool.drop_all()  # the node was demoted: all that lead to it are stale
            raise
        breaker.answered()
        return reply

    def _exchange(self, pool: Pool, it: Send, deadline: Deadline) -> object:
        connection = pool.borrow(deadline)
        sound = False
        try:
            connection.make_ready()
            if it.asking:
                connection.ask(("ASKING",))
            sent_s = monotonic_s()
            command = it.command
            if it.dated:
                command = (*command, self._last_moments.of(it.node, deadline.ends_s))
            try:
                reply = connection.ask(command)
                if it.dated:
                    self._last_moments.heard(it.node, reply, sent_s)
                answer = it.read(reply)
            except SOUND:
                sound = True
                raise
            sound = True
            return answer
        finally:
            pool.give_back(connection, sound=sound)

    @property
    def _pool(self) -> Pool:
        """The connections to the first server of the address."""
        return self._pool_of(self.address.nodes[0])

    def _pool_of(self, node: Node) -> Pool:
        """Give this process's connections to a server."""
        pool = self._pools.get(node)
        if pool is None or pool.pid != os.getpid():
            made = Pool(self._settings, node)
            if pool is not None:
                self._forget(node, pool)
            pool = self._pools.setdefault(node, made)
        return pool

    def _forget(self, node: Node, pool: Pool) -> None:
        """Forget the parent's connections: in a child they are nobody's."""
        if self._pools.get(node) is pool:
            self._pools.pop(node, None)
