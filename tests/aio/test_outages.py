"""The store is away, silent or slow: whoever awaits it is refused by the deadline, too."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from authguard import AsyncGuard, StoreUnavailable
from authguard.stores.valkey_async import AsyncValkeyStore
from authguard.testing import embedded_valkey
from tests.conftest import SECRET
from tests.stores.wire import CLOSE, Wire, free_port, honest

from .conftest import VERA, a_guard, pools, run, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard.testing import EmbeddedValkey
    from tests.stores.wire import Step, Talk

DEADLINE_MS = 200
#: A bound for sanity only, on a busy machine.
SANE_S = 5.0


def silence(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Never answer."""
    yield 3600.0


def drip(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Send a byte every 20 ms."""
    yield b"$400000000\r\n"
    while True:
        yield b"1"
        yield 0.02


def hang_up(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Close instead of answering."""
    yield CLOSE


def read_only(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Say that another one leads."""
    yield b"-READONLY You can't write against a read only replica.\r\n"


def broken(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Send what no script of ours answers."""
    yield b"$5\r\nhello\r\n"


async def reason(guard: AsyncGuard) -> str:
    """Give the reason why an attempt got no verdict; "" if it got one."""
    try:
        await guard.attempt("login", **VERA)
    except StoreUnavailable as error:
        return error.reason
    return ""


async def refused_in(guard: AsyncGuard, why: str) -> float:
    """Give the seconds until an attempt gets no verdict."""
    begun_s = time.monotonic()
    assert await reason(guard) == why
    return time.monotonic() - begun_s


@pytest.mark.parametrize("answer", [silence, drip])
def test_an_endless_reply_costs_a_deadline(
    answer: Callable[[Talk, list[bytes]], Iterator[Step]],
) -> None:
    """B057, A87: silence, or a reply that drips, is refused in time; its connection is dropped."""

    async def story(url: str) -> float:
        async with a_guard(url, deadline_ms=DEADLINE_MS) as guard:
            took_s = await refused_in(guard, "timeout")
            assert pools(guard)[0]._idle == []
            return took_s

    with Wire(answer) as wire:
        assert DEADLINE_MS / 3000 < run(story(wire.url), thorough=True) < SANE_S
        assert wire.verbs() in ([], ["EVALSHA"])


def test_a_full_accept_queue_costs_a_deadline() -> None:
    """B057: a server that doesn't even accept is given up in time."""

    async def story(port: int) -> float:
        async with a_guard(f"valkey://127.0.0.1:{port}", deadline_ms=DEADLINE_MS) as guard:
            return await refused_in(guard, "timeout")

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = int(listener.getsockname()[1])
        for _ in range(2):
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(("127.0.0.1", port))
        assert DEADLINE_MS / 3000 < run(story(port), thorough=True) < SANE_S


def test_a_full_pool_costs_a_deadline(valkey_url: str) -> None:
    """B059: who finds every connection lent is refused in time, and that tells on no server."""

    async def story() -> float:
        store = AsyncValkeyStore(valkey_url, deadline_ms=DEADLINE_MS, connections=1)
        async with AsyncGuard(store, secret=SECRET) as guard:
            await guard.peek("login", **VERA)
            (pool,) = pools(guard)
            await pool.wait(1.0)
            with pool.lend():
                took_s = await refused_in(guard, "timeout")
                assert await asyncio.gather(*(reason(guard) for _ in range(6))) == ["timeout"] * 6
            assert await reason(guard) == ""
            assert not pool.breaker.open
            return took_s

    assert DEADLINE_MS / 2000 < run(story(), thorough=True) < SANE_S


@pytest.mark.parametrize(
    ("answer", "why"),
    [(hang_up, "connection"), (broken, "malformed reply"), (read_only, "read only")],
)
def test_a_wrong_reply_drops_the_connection(
    valkey_server: EmbeddedValkey,
    valkey_url: str,
    answer: Callable[[Talk, list[bytes]], Iterator[Step]],
    why: str,
) -> None:
    """B053: what came instead of a verdict is an outage at once, and nothing is sent again."""

    async def story(wire: Wire) -> None:
        async with a_guard(wire.url) as guard:
            await asyncio.gather(*(guard.peek("login", **VERA) for _ in range(3)))
            (pool,) = pools(guard)
            idle, asked = len(pool._idle), len(wire.commands)
            wire.answer = answer
            assert await reason(guard) == why
            assert len(wire.commands) == asked + 1
            assert len(pool._idle) == (0 if answer is read_only else idle - 1)
            wire.answer = honest
            assert await reason(guard) == ""

    with Wire(honest, valkey_server.port) as wire:
        run(story(wire), thorough=True)


def test_a_silent_server_is_left_alone(valkey_server: EmbeddedValkey, valkey_url: str) -> None:
    """B060: after five timeouts all are refused at once, but one that probes in each pause."""

    async def story(wire: Wire) -> None:
        store = AsyncValkeyStore(wire.url, deadline_ms=400, breaker_ms=400)
        async with AsyncGuard(store, secret=SECRET) as guard:
            for _ in range(4):  # a loop that was late itself says nothing of the server
                reasons = await asyncio.gather(*(reason(guard) for _ in range(5)))
                if pools(guard)[0].breaker.open:
                    break
            assert reasons == ["timeout"] * 5
            asked = len(wire.commands)
            begun_s = time.monotonic()
            assert (
                await asyncio.gather(*(reason(guard) for _ in range(20))) == ["breaker open"] * 20
            )
            assert time.monotonic() - begun_s < 0.2  # less than any timeout
            assert len(wire.commands) == asked

            await asyncio.sleep(0.45)
            reasons = await asyncio.gather(*(reason(guard) for _ in range(20)))
            assert sorted(reasons) == ["breaker open"] * 19 + ["timeout"]
            assert len(wire.commands) == asked + 1

            wire.answer = honest
            await asyncio.sleep(0.45)
            assert await reason(guard) == ""
            assert await asyncio.gather(*(reason(guard) for _ in range(4))) == [""] * 4

    with Wire(silence, valkey_server.port) as wire:
        run(story(wire), thorough=True)


def test_a_cancelled_probe_leaves_the_next_one() -> None:
    """A probe that is cancelled says nothing of the server: the next pause has its own."""

    async def story(wire: Wire) -> None:
        store = AsyncValkeyStore(wire.url, deadline_ms=200, breaker_ms=200)
        async with AsyncGuard(store, secret=SECRET) as guard:
            assert await reason(guard) == "timeout"
            (pool,) = pools(guard)
            for _ in range(5):
                pool.breaker.silent()
            for _ in range(2):
                await asyncio.sleep(0.25)
                asked = len(wire.commands)
                probe = asyncio.ensure_future(guard.attempt("login", **VERA))
                await until(lambda asked=asked: len(wire.commands) > asked)
                probe.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await probe
                assert pool.breaker.open
                assert await reason(guard) == "breaker open"

    with Wire(silence) as wire:
        run(story(wire), thorough=True)


def test_after_a_restart_the_next_attempt_works() -> None:
    """B048: a server back at its port is used at once; a dead one's connections are not."""

    async def story(port: int) -> None:
        async with a_guard(f"valkey://127.0.0.1:{port}") as guard:
            with embedded_valkey(port):
                assert await asyncio.gather(*(reason(guard) for _ in range(4))) == [""] * 4
            assert await reason(guard) == "connection"
            with embedded_valkey(port):
                attempt = await guard.attempt("login", **VERA)
                assert attempt.decision.verdicts[0].remaining == 4

    run(story(free_port()), thorough=True)


def test_a_flush_of_scripts_in_mid_flight_counts_each_once(
    valkey_url: str, client: valkey.Valkey
) -> None:
    """B061: while the server forgets its scripts again and again, each attempt counts once."""

    async def story() -> int:
        async with a_guard(valkey_url) as guard:

            async def flush() -> None:
                for _ in range(20):
                    await asyncio.to_thread(client.script_flush)

            async def guess(number: int) -> None:
                for _ in range(4):
                    await guard.attempt("login", account=f"u{number}", client=f"192.0.2.{number}")

            await asyncio.gather(flush(), *map(guess, range(30)))
            used = 0
            for number in range(30):
                asked = {"account": f"u{number}", "client": f"192.0.2.{number}"}
                used += 5 - (await guard.peek("login", **asked)).verdicts[0].remaining
            return used

    assert run(story()) == 120


def test_a_close_in_use_lets_decisions_end(valkey_server: EmbeddedValkey, valkey_url: str) -> None:
    """close() waits for nobody and breaks nothing: what is lent is closed when it comes back."""

    def slow(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield 0.1
        yield talk.relay(command)

    async def story(url: str) -> None:
        guard = a_guard(url)
        await guard.attempt("login", account="omar", client="198.51.100.9")  # loads the script
        running: Any = asyncio.gather(*(reason(guard) for _ in range(5)))
        await asyncio.sleep(0.05)
        await guard.close()
        assert await running == [""] * 5
        assert pools(guard)[0]._idle == []
        assert (await guard.peek("login", **VERA)).verdicts[0].remaining == 0
        await guard.close()
        await guard.close()
        assert pools(guard)[0]._idle == []

    with Wire(slow, valkey_server.port) as wire:
        run(story(wire.url), thorough=True)


def test_one_deadline_is_for_the_whole_decision(
    valkey_server: EmbeddedValkey, valkey_url: str, client: valkey.Valkey
) -> None:
    """Connecting, EVALSHA and EVAL share one deadline; a task's own doesn't shorten the next."""

    def slow(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield 0.15
        yield talk.relay(command)

    async def story(url: str) -> None:
        store = AsyncValkeyStore(url, deadline_ms=250, connect_ms=250, read_ms=250)
        async with AsyncGuard(store, secret=SECRET) as guard:
            client.script_flush()
            assert await refused_in(guard, "timeout") >= 0.24
            client.script_load((await _script(guard)).text)
            assert await reason(guard) == ""  # its own deadline is whole

    async def _script(guard: AsyncGuard) -> Any:
        seen: list[Any] = []

        class Seen:
            spread = False
            one_deadline = guard.store.one_deadline

            async def run(self, call: Any) -> Any:
                seen.append(call)
                raise StoreUnavailable("seen")

        with pytest.raises(StoreUnavailable):
            await AsyncGuard(Seen(), secret=SECRET).attempt("login", **VERA)
        return seen[0].script

    with Wire(slow, valkey_server.port) as wire:
        run(story(wire.url), thorough=True)
