"""
Stands between a guard and a Valkey, in a process of its own, and does what networks do.

    python relay.py PORT

Prints its own port. Each line of input is what it does from then on, to old and new connections:

    honest           pass everything on
    delay SECONDS    pass replies on so much later
    silent           lose whatever either side says; nobody is told
    cut SHARE        of so many replies in a hundred send half, and close
    swallow SHARE    of so many replies in a hundred say nothing, and keep the connection open

A reply is what arrives at once: guards ask one question at a time on a connection.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress


class Relay:
    """What it does now, and to whom."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._dice = random.Random(1)  # chaos that can be repeated
        self._mode, self._amount = "honest", 0.0

    async def obey(self) -> None:
        """Read from the input what to do, until it ends."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := (await reader.readline()).decode().split():
            self._mode, self._amount = line[0], float(line[1]) if line[1:] else 0.0
            print("done", flush=True)  # noqa: T201 (its answer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what one connection says, and what it is told."""
        with suppress(OSError):
            upstream = await asyncio.open_connection("127.0.0.1", self._upstream_port)
            await asyncio.gather(
                self._pass_on(reader, upstream[1], replies=False),
                self._pass_on(upstream[0], writer, replies=True),
            )
        writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                mode, amount = self._mode, self._amount
                hit = replies and self._dice.random() * 100 < amount
                if mode == "delay" and replies:
                    await asyncio.sleep(amount)
                elif mode == "cut" and hit:
                    writer.write(piece[: len(piece) // 2])
                    break
                elif mode == "silent" or (mode == "swallow" and hit):
                    continue
                writer.write(piece)
                await writer.drain()
        writer.close()


async def main(upstream_port: int) -> None:
    """Run until the input ends."""
    relay = Relay(upstream_port)
    # A short queue, so that a relay that is stopped soon lets nobody in any more.
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0, backlog=1)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 (its answer)
    await relay.obey()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
