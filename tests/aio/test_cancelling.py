"""A task may be cancelled at every await: what was charged stays, what was lent is dropped."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from authguard import AsyncGuard
from authguard.stores.valkey_async import AsyncValkeyStore
from authguard.testing import embedded_valkey
from tests.conftest import PATIENT_MS, SECRET
from tests.servers import tls_server, wait_until
from tests.stores.wire import Wire

from .conftest import VERA, a_guard, cancelled_at, pools, run, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from pathlib import Path

    import valkey

    from authguard.testing import EmbeddedValkey
    from tests.stores.wire import Step, Talk

#: More than any of the stories waits for.
MANY = 40


@asynccontextmanager
async def a_story(guard: AsyncGuard, ready: bool) -> AsyncIterator[None]:
    """Begin with a connection in use, or without one; end with nothing lent and nothing leaked."""
    async with guard:
        if ready:
            await guard.peek("login", **VERA)
        yield
        for pool in pools(guard):
            assert pool._places._value == guard.store._settings.connections
            assert all(connection.is_connected for connection in pool._idle)
        # The next one reads its own reply, and no other's.
        peeked = await guard.peek("unlock", **VERA)
        assert peeked.action == "unlock"
        fresh = await guard.attempt("login", account="omar", client="198.51.100.9")
        assert fresh.decision.verdicts[0].remaining == 4
        await fresh.succeed()


async def entries(guard: AsyncGuard) -> int:
    """Tell how many places of the account's are taken."""
    return 5 - (await guard.peek("login", **VERA)).verdicts[0].remaining


def is_cancelled(
    make: Callable[[], AsyncGuard],
    act: Callable[[AsyncGuard], Coroutine[Any, Any, Any]],
    *,
    ready: bool,
    before: Callable[[AsyncGuard], Coroutine[Any, Any, Any]] | None = None,
    places: tuple[int, ...] = (0, 1),
    at_the_end: int = 1,
) -> list[tuple[int, int]]:
    """
    Cancel an act at each of its waits in turn, in two ways, until it has no more of them.

    Args:
        make: Makes the guard.
        act: What is cancelled.
        ready: Whether there is a connection.
        before: What comes first.
        places: How many places may be taken after a cancellation.
        at_the_end: How many are, if nothing was cancelled.

    Returns:
        For each cancellation at which wait it was, and how many places were taken.
    """
    seen: list[tuple[int, int]] = []
    for as_it_wakes in (False, True):
        for nth in range(1, MANY):

            async def story(nth: int = nth, as_it_wakes: bool = as_it_wakes) -> int | None:
                guard = make()
                async with a_story(guard, ready):
                    if before is not None:
                        await before(guard)
                    lent = [each for pool in pools(guard) for each in pool._idle] if ready else []
                    task = asyncio.ensure_future(
                        cancelled_at(act(guard), nth, as_it_wakes=as_it_wakes)
                    )
                    (outcome,) = await asyncio.gather(task, return_exceptions=True)
                    taken = await entries(guard)
                    if isinstance(outcome, asyncio.CancelledError):
                        assert task.cancelled()
                        assert taken in places
                        assert not lent or not all(each.is_connected for each in lent)
                        seen.append((nth, taken))
                        await guard.clear("login", account="vera", client="192.0.2.7")
                        return None
                    if isinstance(outcome, BaseException):
                        raise outcome
                    assert taken == at_the_end
                    await guard.clear("login", account="vera", client="192.0.2.7")
                    return nth

            if run(story(), thorough=nth % 4 == 1) is not None:
                break
        else:
            pytest.fail("it never ends")
    return seen


async def attempt(guard: AsyncGuard) -> None:
    """Be admitted, and give nothing back."""
    admitted = await guard.attempt("login", **VERA)
    assert admitted.decision.verdicts[0].remaining == 4


def test_an_attempt_is_cancelled_at_every_wait(valkey_url: str, client: valkey.Valkey) -> None:
    """Cancelled while it waits for the reply, or as that comes: one entry at most, none reused."""
    cancelled = is_cancelled(lambda: a_guard(valkey_url), attempt, ready=True)
    assert cancelled
    assert {taken for _, taken in cancelled} >= {1}
    assert wait_for_one(client)


def test_a_new_connection_is_cancelled_at_every_wait(
    valkey_server: EmbeddedValkey, valkey_url: str, client: valkey.Valkey
) -> None:
    """Cancelled while it connects, says who it is and chooses its database, it leaves no socket."""
    client.execute_command("ACL", "SETUSER", "aio", "on", ">word", "~*", "+@all")
    url = f"valkey://aio:word@127.0.0.1:{valkey_server.port}/3"
    try:
        cancelled = is_cancelled(lambda: a_guard(url), attempt, ready=False)
    finally:
        client.execute_command("ACL", "DELUSER", "aio")
    assert len(cancelled) >= 6  # AUTH, SELECT and the call itself, each in two ways
    assert (1, 0) in cancelled
    assert wait_for_one(client)


def test_a_tls_handshake_is_cancelled_at_every_wait() -> None:
    """The same under TLS: the handshake's waits among them."""
    with tls_server() as server:

        def make() -> AsyncGuard:
            store = AsyncValkeyStore(
                server.url, deadline_ms=PATIENT_MS, tls_ca=server.ca_file, connections=2
            )
            return AsyncGuard(store, secret=SECRET)

        cancelled = is_cancelled(make, attempt, ready=False)
        assert (1, 0) in cancelled
        assert wait_for_one(server.server.client)


def test_a_unix_socket_is_cancelled_at_every_wait(tmp_path: Path) -> None:
    """The same by a UNIX socket."""
    path = tmp_path / "valkey.sock"
    with embedded_valkey(unixsocket=str(path)):
        assert is_cancelled(lambda: a_guard(f"valkey+unix://{path}"), attempt, ready=False)


def test_a_script_sent_whole_is_cancelled_at_every_wait(
    valkey_url: str, client: valkey.Valkey
) -> None:
    """After SCRIPT FLUSH, cancelled between EVALSHA and EVAL, nothing was charged."""

    async def forget(guard: AsyncGuard) -> None:
        client.script_flush()

    cancelled = is_cancelled(lambda: a_guard(valkey_url), attempt, ready=True, before=forget)
    assert len(cancelled) >= 4
    assert {taken for _, taken in cancelled} == {0, 1}


@pytest.mark.parametrize("way_out", ["succeed", "release"])
def test_a_settlement_is_cancelled_at_every_wait(valkey_url: str, way_out: str) -> None:
    """Cancelled while it gives back, its entry is there or gone, and nobody else's is touched."""
    held: list[Any] = []

    async def admitted(guard: AsyncGuard) -> None:
        held[:] = [await guard.attempt("login", **VERA)]

    async def settle(_: AsyncGuard) -> None:
        await getattr(held[0], way_out)()

    cancelled = is_cancelled(
        lambda: a_guard(valkey_url), settle, ready=True, before=admitted, at_the_end=0
    )
    assert cancelled
    assert not held[0].pending


def test_the_wait_for_a_connection_is_cancelled(valkey_url: str) -> None:
    """Whoever waits for a place in a full pool can go: the place is its lender's again."""

    async def story() -> None:
        store = AsyncValkeyStore(valkey_url, deadline_ms=PATIENT_MS, connections=1)
        guard = AsyncGuard(store, secret=SECRET)
        async with a_story(guard, ready=True):
            (pool,) = pools(guard)
            for hand_over in (False, True):
                await pool.wait(1.0)
                with pool.lend():
                    waiting = [asyncio.ensure_future(guard.peek("login", **VERA)) for _ in "ab"]
                    for _ in range(5):
                        await asyncio.sleep(0)
                    assert pool._places.locked()
                    if not hand_over:
                        waiting[0].cancel()
                if hand_over:  # it has been given the place, and has not gone on yet
                    waiting[0].cancel()
                assert isinstance(
                    (await asyncio.gather(*waiting, return_exceptions=True))[0],
                    asyncio.CancelledError,
                )
                assert (await waiting[1]).allowed

    run(story(), thorough=True)


def silence(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Never answer."""
    yield 3600.0


def test_a_timeout_around_an_attempt_ends_it() -> None:
    """asyncio.timeout ends an attempt before its own deadline, as TimeoutError, and drops all."""

    async def story(url: str) -> None:
        async with a_guard(url) as guard:
            for make in (guard.attempt, guard.peek):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await make("login", **VERA)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(guard.attempt("login", **VERA), 0.05)
            (pool,) = pools(guard)
            assert pool._idle == []
            assert pool._places._value == guard.store._settings.connections
            assert not pool.breaker.open

    with Wire(silence) as wire:
        run(story(wire.url), thorough=True)
    assert wire.verbs() in [["EVALSHA"] * sent for sent in range(4)]  # none twice


def test_a_scope_of_anyio_around_an_attempt_ends_it() -> None:
    """With anyio a task is cancelled at every step until it is out: no place is lost so either."""

    async def story(url: str) -> None:
        async with a_guard(url) as guard:
            for _ in range(3):
                with anyio.move_on_after(0.05) as scope:
                    await guard.attempt("login", **VERA)
                assert scope.cancelled_caught
            (pool,) = pools(guard)
            assert pool._idle == []
            assert pool._places._value == guard.store._settings.connections

    with Wire(silence) as wire:
        run(story(wire.url), thorough=True)
    assert wire.verbs() in [["EVALSHA"] * sent for sent in range(4)]  # none twice


def test_cancelled_on_its_way_in_or_in_its_body_it_stays_counted(valkey_url: str) -> None:
    """A block that is cancelled, before its first line or in it, leaves one counted failure."""

    async def story() -> None:
        async with a_guard(valkey_url) as guard:
            await guard.peek("login", **VERA)
            reached = []

            async def sign_in() -> None:
                async with guard.attempt("login", **VERA) as admitted:
                    reached.append(admitted)
                    await asyncio.sleep(3600)
                    await admitted.succeed()

            for expected in (1, 2):
                task = asyncio.ensure_future(sign_in())
                await until(lambda expected=expected: len(reached) >= expected)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert reached[-1].pending
                assert await entries(guard) == expected

            task = asyncio.ensure_future(cancelled_at(sign_in(), 2))  # the reply's wait
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(reached) == 2
            assert await entries(guard) in (2, 3)

    run(story(), thorough=True)


def test_an_attempt_may_be_a_task(valkey_url: str) -> None:
    """An attempt is awaited, entered, gathered, or made a task, like any coroutine."""

    async def story() -> None:
        async with a_guard(valkey_url) as guard, asyncio.TaskGroup() as group:
            task = group.create_task(guard.attempt("login", **VERA))
            await asyncio.gather(guard.attempt("login", **VERA), guard.attempt("login", **VERA))
            await asyncio.wait_for(guard.attempt("login", **VERA), 10)
            assert (await task).action == "login"
            assert await entries(guard) == 4

    run(story(), thorough=True)


def test_an_attempt_that_nobody_awaits_says_so(valkey_url: str) -> None:
    """A forgotten await is no protection, so Python warns of it by the method's name."""

    async def story() -> None:
        async with a_guard(valkey_url) as guard:
            with pytest.warns(RuntimeWarning, match="attempt' was never awaited"):
                guard.attempt("login", **VERA)

    run(story())


def wait_for_one(plain: valkey.Valkey) -> bool:
    """Wait until nobody but the asking client is connected."""
    wait_until(lambda: len(plain.client_list()) == 1, "every other connection is closed")
    return True
