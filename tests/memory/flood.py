"""
A process of attackers for the tests of memory: as many attempts as it is told, as fast as it goes.

    flood.py '{"url": …, "secret": …, "policies": …, "clients": […], "attempts": …, "seed": …}'

Each attempt is one ``Guard.attempt``, of a random name that nobody else uses, from the clients in
turn. The script calls that the guard makes go out a hundred in one message, so that the time goes
into the server's work rather than into waiting for it. A line of JSON tells how many were admitted
and refused, and what this process itself weighs after the first thousand and at the end.
"""

from __future__ import annotations

import json
import os
import random
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import valkey

from authguard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from authguard._core.calls import ScriptCall
    from authguard.decision import Decision

BATCH = 100
#: How many attempts it makes before it first looks at its own weight.
WARM = 1_000


class Made(Exception):
    """The guard has made its call."""

    def __init__(self, call: ScriptCall[Decision]) -> None:
        super().__init__()
        self.call = call


class Catching:
    """A store that hands the guard's call to the flood, which sends it with others."""

    spread = False

    def one_deadline(self) -> AbstractContextManager[None]:
        """Need none."""
        return nullcontext()

    def run(self, call: Any) -> Never:
        """Hand it over."""
        raise Made(call)

    def close(self) -> None:
        """Hold nothing."""


def calls(guard: Guard, clients: list[str], attempts: int, seed: int) -> Iterator[Any]:
    """Make the calls of so many attempts."""
    draw = random.Random(seed)
    for number in range(attempts):
        name = f"name-{seed}-{draw.getrandbits(96):024x}"
        try:
            guard.attempt("login", account=name, client=clients[number % len(clients)])
        except Made as made:
            yield made.call


def flood(server: valkey.Valkey, guard: Guard, clients: list[str], attempts: int, seed: int) -> Any:
    """Make the attempts, and tell what came of them."""
    waiting = server.pipeline(transaction=False)
    pending: list[ScriptCall[Decision]] = []
    admitted, sent, warm_bytes = 0, 0, 0
    loaded = None
    for call in calls(guard, clients, attempts, seed):
        if call.script is not loaded:
            server.script_load(call.script.text)
            loaded = call.script
        waiting.evalsha(call.script.sha1, len(call.keys), *call.keys, *call.args)
        pending.append(call)
        sent += 1
        if len(pending) == BATCH or sent == attempts:
            replies = waiting.execute()
            admitted += sum(
                it.read(reply).allowed for it, reply in zip(pending, replies, strict=True)
            )
            pending.clear()
        if sent == WARM:
            warm_bytes = own_bytes()
    return {
        "admitted": admitted,
        "refused": sent - admitted,
        "warm_bytes": warm_bytes or own_bytes(),
        "bytes": own_bytes(),
    }


def own_bytes() -> int:
    """Give how much of this process is in memory."""
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return resident_pages * os.sysconf("SC_PAGE_SIZE")


def main(given: dict[str, Any]) -> None:
    """Do it once."""
    with (
        valkey.Valkey.from_url(given["url"], socket_timeout=60) as server,
        Guard(Catching(), secret=given["secret"], policies=given["policies"]) as guard,
    ):
        told = flood(server, guard, given["clients"], given["attempts"], given["seed"])
        print(json.dumps(told), flush=True)  # noqa: T201 (its answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
