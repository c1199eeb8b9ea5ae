"""The breaker: a silent server is left alone and probed by one; nothing else is held against it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from authguard import AsyncGuard, StoreUnavailable
from authguard.stores._breaker import FAILURES, Breaker
from authguard.stores.valkey import ValkeyStore
from authguard.stores.valkey_async import AsyncValkeyStore
from authguard.testing import embedded_valkey
from tests.conftest import SECRET
from tests.stores.conftest import VERA, held, stopped, warm
from tests.stores.test_forks import _run
from tests.stores.wire import CLOSE, Wire, free_port, honest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from authguard import Guard
    from authguard.testing import EmbeddedValkey
    from tests.stores.wire import Step, Talk

    Guards = Callable[..., Guard]

DEADLINE_MS = 60
PAUSE_MS = 400
PAUSE_S = PAUSE_MS / 1_000


class Seconds:
    """A clock that a test moves, in seconds."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        """Read it."""
        return self.now_s


@pytest.fixture
def seconds() -> Seconds:
    """Give the clock."""
    return Seconds()


@pytest.fixture
def breaker(seconds: Seconds) -> Breaker:
    """Give a breaker with a pause of one second."""
    return Breaker(1.0, seconds)


def let_through(breaker: Breaker) -> bool:
    """Ask to enter."""
    try:
        breaker.enter()
    except StoreUnavailable:
        return False
    return True


def test_five_silences_in_a_row_open_it(breaker: Breaker) -> None:
    """Four are borne, the fifth opens it; from then on nobody enters."""
    for _ in range(FAILURES - 1):
        assert let_through(breaker)
        breaker.silent()
    assert not breaker.open
    assert let_through(breaker)
    breaker.silent()
    assert breaker.open
    assert [let_through(breaker) for _ in range(3)] == [False] * 3
    assert FAILURES == 5


def test_any_answer_between_begins_the_row_afresh(breaker: Breaker) -> None:
    """However many silences there are, with an answer after every fourth it stays closed."""
    for _ in range(20):
        for _ in range(FAILURES - 1):
            breaker.silent()
        breaker.answered()
    assert not breaker.open


def test_one_probe_a_pause(breaker: Breaker, seconds: Seconds) -> None:
    """Open, it lets one through at the end of each pause, however much later it is asked."""
    for _ in range(FAILURES):
        breaker.silent()
    for step_s, passes in [(0.999, False), (0.001, True), (0, False), (0.999, False), (5, True)]:
        seconds.now_s += step_s
        assert let_through(breaker) is passes
        if passes:
            seconds.now_s += 0.25
            breaker.silent()  # the silence of a probe does not put the next one off
            seconds.now_s -= 0.25
    seconds.now_s += 1
    assert let_through(breaker)
    breaker.answered()
    assert [let_through(breaker) for _ in range(9)] == [True] * 9


def test_an_answer_to_an_old_request_closes_it(breaker: Breaker) -> None:
    """What was sent before it opened and is answered after all proves the server alive."""
    for _ in range(FAILURES):
        breaker.silent()
    breaker.answered()
    assert let_through(breaker)
    breaker.silent()
    assert not breaker.open


def test_of_many_threads_one_probes(breaker: Breaker, seconds: Seconds) -> None:
    """Fifty threads at the end of a pause: exactly one is let through, in every pause."""
    for _ in range(FAILURES):
        breaker.silent()
    barrier = threading.Barrier(50)
    passed: Counter[int] = Counter()
    lock = threading.Lock()

    def knock() -> None:
        for turn in range(20):
            if barrier.wait() == 0:
                seconds.now_s += 1
            barrier.wait()
            if let_through(breaker):
                with lock:
                    passed[turn] += 1

    threads = [threading.Thread(target=knock) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed == dict.fromkeys(range(20), 1)


def attempted(guard: Guard) -> tuple[str, float]:
    """Attempt once; give the outcome in a word, and the seconds it took."""
    begun = time.monotonic()
    try:
        guard.attempt("login", account="omar", client="192.0.2.9").release()
    except StoreUnavailable as error:
        return error.reason, time.monotonic() - begun
    return "admitted", time.monotonic() - begun


def store_on(url: str, **settings: int) -> ValkeyStore:
    """Make a store with a short pause."""
    return ValkeyStore(url, **({"deadline_ms": DEADLINE_MS, "breaker_ms": PAUSE_MS} | settings))


def silence(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Never answer."""
    yield 3600.0


def test_a_silent_server_is_left_alone_and_asked_once_a_pause(guard_factory: Guards) -> None:
    """B057: five deadlines, then answers at once; the server sees one new request a pause."""
    with Wire(silence) as wire:
        guard = guard_factory(store=store_on(wire.url))
        assert [attempted(guard)[0] for _ in range(FAILURES)] == ["timeout"] * FAILURES
        begun = time.monotonic()
        told = [attempted(guard) for _ in range(100)]
        quick = [took_s for reason, took_s in told if reason == "breaker open"]
        assert len(quick) >= 98
        assert sorted(quick)[len(quick) // 2] < 0.005
        while time.monotonic() - begun < 3 * PAUSE_S:
            told.append(attempted(guard))
            time.sleep(0.001)
        pauses = int((time.monotonic() - begun) / PAUSE_S)
        probes = [reason for reason, _ in told].count("timeout")
        assert pauses - 1 <= probes <= pauses + 1
        assert len(wire.talks) == FAILURES + probes
        assert len(wire.commands) == FAILURES + probes


def test_a_stopped_server_is_back_within_a_pause(
    own_valkey: EmbeddedValkey, guard_factory: Guards
) -> None:
    """A86: SIGSTOP opens it; after SIGCONT the next probe finds the server, and all go through."""
    guard = guard_factory(store=store_on(own_valkey.url))
    warm(guard)
    with stopped(own_valkey):
        while attempted(guard)[0] != "breaker open":
            pass
    begun = time.monotonic()
    while attempted(guard)[0] != "admitted":
        assert time.monotonic() - begun < 5
        time.sleep(0.005)
    assert time.monotonic() - begun < PAUSE_S + 1
    assert not guard.store._pool.breaker.open  # type: ignore[attr-defined]
    warm(guard)


def hang_up(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Close instead of answering."""
    yield CLOSE


def refuse(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Answer with an error."""
    yield b"-BUSY Valkey is busy running a script\r\n"


@pytest.mark.parametrize(
    ("answer", "reason"), [(None, "connection"), (hang_up, "connection"), (refuse, "error reply")]
)
def test_what_answers_at_once_never_opens_it(
    valkey_server: EmbeddedValkey,
    guard_factory: Guards,
    answer: Callable[[Talk, list[bytes]], Iterator[Step]] | None,
    reason: str,
) -> None:
    """A closed port, a hang-up, an error: told as such each time; back with the next request."""
    if answer is None:
        port = free_port()
        guard = guard_factory(store=store_on(f"valkey://127.0.0.1:{port}", deadline_ms=2_000))
        assert {attempted(guard)[0] for _ in range(4 * FAILURES)} == {reason}
        with embedded_valkey(port):
            assert attempted(guard)[0] == "admitted"
        return
    with Wire(answer, valkey_server.port) as wire:
        guard = guard_factory(store=store_on(wire.url, deadline_ms=2_000))
        assert {attempted(guard)[0] for _ in range(4 * FAILURES)} == {reason}
        wire.answer = honest
        assert attempted(guard)[0] == "admitted"


def test_a_busy_pool_never_opens_it(valkey_url: str, guard_factory: Guards) -> None:
    """Who finds no free connection in time is refused, and that says nothing of the server."""
    store = store_on(valkey_url, connections=1)
    guard = guard_factory(store=store)
    warm(guard)
    with held(store):
        assert {attempted(guard)[0] for _ in range(2 * FAILURES)} == {"timeout"}
    assert not store._pool.breaker.open
    warm(guard)
    assert attempted(guard)[0] in {"admitted", "timeout"}  # 60 ms are short on a busy machine


def test_a_late_turn_is_not_held_against_the_server(guard_factory: Guards) -> None:
    """What is asked with hardly any time left tells nothing: its silence does not count."""
    with Wire(silence) as wire:
        store = store_on(wire.url, deadline_ms=200)
        guard = guard_factory(store=store)
        for _ in range(FAILURES + 1):
            with store.one_deadline():
                time.sleep(0.17)  # of 0.2 s: what is left is less than a fair chance
                assert attempted(guard)[0] == "timeout"
        assert not store._pool.breaker.open


def test_two_nodes_have_two(guard_factory: Guards, valkey_server: EmbeddedValkey) -> None:
    """Of two servers the silent one alone is left alone."""

    def sentinel(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        port = next(ports)
        yield b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(port)), port)

    def deaf_primary(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        if command[0] == b"ROLE":
            yield b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
        else:
            yield 3600.0

    with Wire(deaf_primary) as deaf, Wire(sentinel) as wire:
        ports = cycle([deaf.port])
        store = store_on(f"valkey+sentinel://127.0.0.1:{wire.port}/main", breaker_ms=60_000)
        guard = guard_factory(store=store)
        # ROLE is answered, which begins the row afresh: silence is counted on a found primary.
        told = [attempted(guard)[0] for _ in range(FAILURES)]
        assert told == ["timeout"] * FAILURES
        ports = cycle([valkey_server.port])
        told = [attempted(guard)[0] for _ in range(3)]
        assert "breaker open" not in told
        breakers = {str(node): pool.breaker.open for node, pool in store._pools.items()}
        assert len(breakers) == 3
        assert breakers[f"127.0.0.1:{valkey_server.port}"] is False


def test_a_forked_child_starts_closed(valkey_server: EmbeddedValkey, valkey_url: str) -> None:
    """What the parent knows of a silent server its child does not: it asks for itself."""
    script = """
store = ValkeyStore(sys.argv[1], deadline_ms=50, breaker_ms=60_000)
guard = Guard(store, secret="a secret of the forks, 32 bytes or more")
from authguard import StoreUnavailable
def reason():
    try:
        guard.attempt("login", account="vera", client="192.0.2.7")
    except StoreUnavailable as error:
        return error.reason
    return "admitted"
told = [reason() for _ in range(6)]
assert told == ["timeout"] * 5 + ["breaker open"], told
child = os.fork()
if not child:
    os._exit(0 if reason() == "timeout" else 1)
assert os.waitpid(child, 0)[1] == 0
assert reason() == "breaker open"
print("child asked")
"""
    with Wire(silence) as wire:
        assert _run(script, wire.url) == "child asked\n"
    assert len(wire.talks) == FAILURES + 1


def test_the_same_awaited() -> None:
    """AsyncGuard: five deadlines, then "breaker open" at once, and one probe a pause."""

    async def story() -> tuple[list[str], list[str], float]:
        store = AsyncValkeyStore(wire.url, deadline_ms=DEADLINE_MS, breaker_ms=PAUSE_MS)
        async with AsyncGuard(store, secret=SECRET) as guard:

            async def reason() -> str:
                try:
                    await guard.attempt("login", **VERA)
                except StoreUnavailable as error:
                    return error.reason
                return "admitted"

            first = [await reason() for _ in range(FAILURES)]
            begun = time.monotonic()
            then = list(await asyncio.gather(*(reason() for _ in range(50))))
            took_s = time.monotonic() - begun
            await asyncio.sleep(PAUSE_S)
            then += await asyncio.gather(*(reason() for _ in range(50)))
        return first, then, took_s

    with Wire(silence) as wire:
        first, then, took_s = asyncio.run(story())
        assert first == ["timeout"] * FAILURES
        assert Counter(then)["timeout"] == 1
        assert Counter(then)["breaker open"] == 99
        assert took_s < PAUSE_S
        assert len(wire.talks) == FAILURES + 1
