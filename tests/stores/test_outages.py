"""The store is away, silent or slow: every attempt is refused with a reason, by the deadline."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from authguard import StoreUnavailable
from authguard.stores.valkey import ValkeyStore
from authguard.testing import embedded_valkey

from .conftest import SANE_S, VERA, held, stopped, warm
from .wire import CLOSE, Wire, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard.testing import EmbeddedValkey

    from .conftest import Guards, NoteTime, Outage
    from .wire import Step, Talk

#: The package's default.
DEADLINE_MS = 100

#: Where an answer comes, and must not be taken for a slow one.
PATIENT_MS = 3_000


def test_a_stopped_server_refuses(guard_factory: Guards, outage: Outage) -> None:
    """B048, A86: after the server has stopped, connections in use and new ones refuse."""
    with embedded_valkey() as server:
        guard = guard_factory(store=server.url, deadline_ms=DEADLINE_MS)
        warm(guard)
    outage(guard, "stopped, connection in use", "connection")
    outage(guard, "stopped, new connection", "connection")


def test_a_port_without_a_listener_refuses(guard_factory: Guards, outage: Outage) -> None:
    """B059: where nothing listens the attempt is refused."""
    guard = guard_factory(store=f"valkey://127.0.0.1:{free_port()}", deadline_ms=DEADLINE_MS)
    outage(guard, "nothing listens", "connection")


def test_an_unknown_host_refuses(
    guard_factory: Guards, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B059: a host name that doesn't exist refuses like any other outage."""

    def unknown(*_: object) -> list[Any]:  # a real resolver can take its time without a network
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    guard = guard_factory(store="valkey://no-such-host.invalid:6379", deadline_ms=DEADLINE_MS)
    outage(guard, "unknown host", "connection")


def test_a_frozen_server_refuses_at_the_deadline(
    own_valkey: EmbeddedValkey, guard_factory: Guards, outage: Outage
) -> None:
    """B057: a server that is there but silent costs one deadline, and works again at once."""
    used = guard_factory(store=own_valkey.url, deadline_ms=DEADLINE_MS)
    new = guard_factory(store=own_valkey.url, deadline_ms=DEADLINE_MS)
    warm(used)
    with stopped(own_valkey):
        outage(used, "SIGSTOP, connection in use", "timeout")
        outage(new, "SIGSTOP, new connection", "timeout")
    warm(used)


@pytest.mark.parametrize("which", ["ALL", "WRITE"])
def test_paused_clients_are_refused_at_the_deadline(
    own_valkey: EmbeddedValkey,
    own_client: valkey.Valkey,
    guard_factory: Guards,
    outage: Outage,
    which: str,
) -> None:
    """A87: CLIENT PAUSE holds nobody longer than the deadline."""
    guard = guard_factory(store=own_valkey.url, deadline_ms=DEADLINE_MS)
    warm(guard)
    own_client.execute_command("CLIENT", "PAUSE", 3_600_000, which)
    outage(guard, f"CLIENT PAUSE {which}", "timeout")


def test_parallel_attempts_share_no_waiting(
    own_valkey: EmbeddedValkey,
    guard_factory: Guards,
    note_time: NoteTime,
) -> None:
    """B057, B060: twenty attempts on two connections of a silent server all end by the deadline."""
    store = ValkeyStore(own_valkey.url, deadline_ms=DEADLINE_MS, connections=2)
    guard = guard_factory(store=store)
    warm(guard)
    took_s, reasons = [], []

    def ask(number: int) -> None:
        begun = time.monotonic()
        try:
            guard.attempt("login", account=f"user{number}", client="192.0.2.7")
        except StoreUnavailable as error:
            reasons.append(error.reason)
        took_s.append(time.monotonic() - begun)

    threads = [threading.Thread(target=ask, args=[number]) for number in range(20)]
    with stopped(own_valkey):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    note_time("SIGSTOP, 20 threads, 2 connections: the slowest", 0.1, max(took_s), "timeout")
    assert reasons == ["timeout"] * 20
    assert max(took_s) < SANE_S


def test_an_exhausted_pool_refuses_at_the_deadline(
    valkey_url: str, guard_factory: Guards, outage: Outage
) -> None:
    """B059: who finds every connection lent waits for one until the deadline, then is refused."""
    store = ValkeyStore(valkey_url, deadline_ms=DEADLINE_MS, connections=1)
    guard = guard_factory(store=store)
    warm(guard)
    with held(store):
        outage(guard, "every connection is lent", "timeout")
    warm(guard)


def drip(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Send a byte every 20 ms."""
    yield b"$400000000\r\n"
    while True:
        yield b"1"
        yield 0.02


def torrent(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Send a reply that never ends."""
    yield b"$400000000\r\n"
    while True:
        yield b"1" * 1024
        yield 0.001


def silence(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Never answer."""
    yield 3600.0


def hang_up(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Close instead of answering."""
    yield CLOSE


def hang_up_in_mid_reply(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Close after the first two integers."""
    yield b"*30\r\n:1800000000000\r\n:1\r\n"
    yield CLOSE


@pytest.mark.parametrize(
    ("case", "answer", "deadline_ms"),
    [
        ("accepts and never answers", silence, DEADLINE_MS),
        ("drips a byte every 20 ms", drip, DEADLINE_MS),
        ("a reply without an end", torrent, DEADLINE_MS),
        ("closes instead of answering", hang_up, PATIENT_MS),
        ("closes in mid-reply", hang_up_in_mid_reply, PATIENT_MS),
    ],
)
def test_a_server_that_never_finishes_its_reply_refuses(
    guard_factory: Guards,
    outage: Outage,
    case: str,
    answer: Callable[[Talk, list[bytes]], Iterator[Step]],
    deadline_ms: int,
) -> None:
    """B057, A87: half a reply, a slow one or none is no verdict, and ends by the deadline."""
    with Wire(answer) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=deadline_ms)
        outage(guard, case, "timeout" if deadline_ms == DEADLINE_MS else "connection")
    assert wire.verbs() == ["EVALSHA"]


def full_queue(stack: ExitStack) -> int:
    """Listen, accept nobody, and let the queue fill: whoever comes next gets no answer at all."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    port = int(listener.getsockname()[1])
    for _ in range(2):
        queued = stack.enter_context(socket.socket())
        queued.setblocking(False)
        queued.connect_ex(("127.0.0.1", port))
    return port


def test_a_full_accept_queue_refuses(guard_factory: Guards, outage: Outage) -> None:
    """B057: a server that doesn't even accept costs no more than one that doesn't answer."""
    with ExitStack() as stack:
        port = full_queue(stack)
        guard = guard_factory(store=f"valkey://127.0.0.1:{port}", deadline_ms=DEADLINE_MS)
        outage(guard, "the accept queue is full", "timeout")


def test_a_name_of_many_silent_addresses_refuses_by_one_deadline(
    guard_factory: Guards, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B060: the deadline is for all addresses of a name together, not for each of them."""
    with ExitStack() as stack:
        port = full_queue(stack)
        real = socket.getaddrinfo

        def many(host: str, *rest: Any) -> list[Any]:
            return real("127.0.0.1", *rest) * (400 if host == "many.invalid" else 1)

        monkeypatch.setattr(socket, "getaddrinfo", many)
        guard = guard_factory(store=f"valkey://many.invalid:{port}", deadline_ms=DEADLINE_MS)
        error = outage(guard, "a name of 400 silent addresses", "timeout")
    assert error.__cause__ is not None


def test_after_a_restart_the_next_attempt_works(guard_factory: Guards, outage: Outage) -> None:
    """B048: a server back on the same port is used at once, without a restart of the app."""
    port = free_port()
    with embedded_valkey(port) as server:
        guard = guard_factory(store=server.url, deadline_ms=2_000)
        warm(guard)
        assert guard.attempt("login", **VERA).decision.verdicts[0].remaining == 4
    outage(guard, "stopped, before a restart", "connection")
    with embedded_valkey(port):
        assert guard.attempt("login", **VERA).decision.verdicts[0].remaining == 4


def test_a_flushed_store_starts_counting_afresh(
    own_valkey: EmbeddedValkey, own_client: valkey.Valkey, guard_factory: Guards
) -> None:
    """A91: lost data are no outage: the logs are empty, and counting goes on exactly."""
    guard = guard_factory(store=own_valkey.url)
    before = [guard.attempt("login", **VERA).decision.verdicts[0].remaining for _ in range(3)]
    own_client.flushall()
    after = [guard.attempt("login", **VERA).decision.verdicts[0].remaining for _ in range(3)]
    assert before == after == [4, 3, 2]
