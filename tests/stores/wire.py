"""
A TCP server that speaks RESP bytes of a test's choice, or stands between a guard and a Valkey.

What a real server never sends has to come from somewhere: a test gives a generator that is
called for each command and yields what goes back, byte for byte.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import libvalkey

from authguard.testing import _free_port as free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CLOSE", "Talk", "Wire", "free_port", "honest"]

#: Yielded by an answer: the connection ends here.
CLOSE: Final = "close"

Step = bytes | float | str


class Talk:
    """
    One connection of a client to the wire.

    Attributes:
        number: Which connection it is, from 1.
        over: Set when it is closed.
    """

    def __init__(self, wire: Wire, client: socket.socket, number: int) -> None:
        self.number = number
        self.over = threading.Event()
        self._wire = wire
        self._client = client
        self._upstream: socket.socket | None = None

    def relay(self, command: list[bytes]) -> bytes:
        """Run the command on the real server behind, the same one for the whole connection."""
        if self._upstream is None:
            address = ("127.0.0.1", self._wire.upstream_port)
            self._upstream = socket.create_connection(address, timeout=10)
        self._upstream.sendall(libvalkey.pack_command(tuple(command)))
        reader, raw = libvalkey.Reader(notEnoughData=CLOSE), b""
        while reader.gets() == CLOSE:
            if not (piece := self._upstream.recv(65536)):
                raise ConnectionResetError
            reader.feed(piece)
            raw += piece
        return raw

    def run(self) -> None:
        """Answer until the client, the real server or the test ends it."""
        with suppress(OSError):
            for command in _commands(self._client):
                self._wire.commands.append(command)
                for step in self._wire.answer(self, command):
                    if isinstance(step, bytes):
                        self._client.sendall(step)
                    elif step == CLOSE or self._wire.ended.wait(float(step)):
                        return self.close()
        return self.close()

    def close(self) -> None:
        """Let both sides go."""
        for side in (self._client, self._upstream):
            if side is not None:
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
                side.close()
        self.over.set()


def honest(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Answer as the real server behind does."""
    yield talk.relay(command)


class Wire:
    """
    A listening port whose answers a test makes up.

    Args:
        answer: Called with the connection and the command; yields bytes to send, seconds to
            wait, or :data:`CLOSE`. It may be exchanged while the wire runs.
        upstream_port: The real server that :meth:`Talk.relay` talks to; may be exchanged too,
            for connections to come.

    Attributes:
        commands: Every command that came, with its arguments, in order.
        talks: The connections so far.
        ended: Set when the wire closes.
    """

    def __init__(
        self, answer: Callable[[Talk, list[bytes]], Iterator[Step]], upstream_port: int = 0
    ) -> None:
        self.answer = answer
        self.upstream_port = upstream_port
        self.commands: list[list[bytes]] = []
        self.talks: list[Talk] = []
        self.ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def port(self) -> int:
        """Its port on 127.0.0.1."""
        return self._port

    @property
    def url(self) -> str:
        """Its address, as a guard takes it."""
        return f"valkey://127.0.0.1:{self._port}/0"

    def verbs(self) -> list[str]:
        """Tell the names of the commands that came."""
        return [command[0].decode() for command in self.commands]

    def _accept(self) -> None:
        with suppress(OSError):
            while not self.ended.is_set():
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                talk = Talk(self, client, len(self.talks) + 1)
                self.talks.append(talk)
                thread = threading.Thread(target=talk.run)
                self._threads.append(thread)
                thread.start()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(10)
        for talk in self.talks:
            talk.close()
        for thread in self._threads[1:]:
            thread.join(10)


def _commands(client: socket.socket) -> Iterator[list[bytes]]:
    """Read commands off a connection until it ends."""
    reader = libvalkey.Reader(notEnoughData=CLOSE)
    while True:
        while (command := reader.gets()) != CLOSE:
            yield command
        if not (piece := client.recv(65536)):
            return
        reader.feed(piece)
