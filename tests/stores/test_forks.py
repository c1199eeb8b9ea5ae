"""A forked worker shares nothing with its parent: no socket, no reply, no place in the pool."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from .wire import Wire, honest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authguard.testing import EmbeddedValkey

    from .wire import Step, Talk

#: Runs apart from the test: forking a process with pytest's threads is asking for trouble.
PREAMBLE = """
import os, sys, threading, time
from authguard import Guard
from authguard.stores.valkey import ValkeyStore

def guard_on(connections):
    store = ValkeyStore(sys.argv[1], deadline_ms=20_000, connections=connections)
    return Guard(store, secret="a secret of the forks, 32 bytes or more")

def ask(name, turns):
    got = [guard.attempt("login", account=f"{name}{turn // 5}", client="192.0.2." + name)
           .decision.verdicts[0].remaining for turn in range(turns)]
    assert got == [4, 3, 2, 1, 0] * (turns // 5), got
"""


def _run(script: str, url: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PREAMBLE + script, url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_after_a_fork_both_processes_get_their_own_answers(
    valkey_server: EmbeddedValkey, valkey_url: str
) -> None:
    """Parent and child go on at once, and each reads the answers to its own questions alone."""
    script = """
guard = guard_on(4)
guard.peek("login", account="warm", client="192.0.2.1")
child = os.fork()
ask("2" if child else "3", 25)
if child:
    assert os.waitpid(child, 0)[1] == 0
    ask("4", 5)
    print("both")
"""
    with Wire(honest, valkey_server.port) as wire:
        assert _run(script, wire.url) == "both\n"
    assert len(wire.talks) == 2


def test_a_fork_while_all_connections_are_lent_leaves_the_child_its_places(
    valkey_server: EmbeddedValkey, valkey_url: str
) -> None:
    """A child forked beside threads that wait for replies has the whole pool to itself."""
    script = """
guard = guard_on(2)
threads = [threading.Thread(target=ask, args=[name, 5], daemon=True) for name in "56"]
for thread in threads:
    thread.start()
while guard._engine.store._pool.lent < 2:
    time.sleep(0.01)
time.sleep(0.1)
child = os.fork()
if not child:
    ask("7", 5)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("child done")
"""

    def first_two_wait(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        if talk.number <= 2:
            yield 3600.0
        yield from honest(talk, command)

    with Wire(first_two_wait, valkey_server.port) as wire:
        assert _run(script, wire.url) == "child done\n"
