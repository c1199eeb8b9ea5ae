"""An answer belongs to its question: what may hold another's reply is closed, never read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard import Denied

from .conftest import VERA, warm
from .wire import CLOSE, Wire, honest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authguard.testing import EmbeddedValkey

    from .conftest import Guards, Outage
    from .wire import Step, Talk

OMAR = {"account": "omar", "client": "198.51.100.9"}


@pytest.fixture
def full(guard_factory: Guards) -> None:
    """Use up omar's attempts, so that any admission of omar is somebody else's reply."""
    for _ in range(5):
        guard_factory().attempt("login", **OMAR)


def test_a_late_reply_is_never_the_answer_to_the_next_attempt(
    valkey_server: EmbeddedValkey, guard_factory: Guards, outage: Outage, full: None
) -> None:
    """A87: the admission that came too late for vera admits nobody else."""

    def late(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        reply = talk.relay(command)
        if talk.number == 1:
            yield 0.8
        yield reply

    with Wire(honest, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=1_000)
        warm(guard)
        first = len(wire.commands)
        wire.answer = late
        outage(guard, "the reply comes after the deadline", "timeout")
        with pytest.raises(Denied):
            guard.attempt("login", **OMAR)
        assert len(wire.talks) == 2
        assert len(wire.commands) == first + 2


def test_after_a_malformed_reply_the_connection_is_closed(
    valkey_server: EmbeddedValkey, guard_factory: Guards, outage: Outage, full: None
) -> None:
    """A connection that once gave nonsense is out of step: its next reply is never read."""
    replies: list[bytes] = []

    def out_of_step(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        replies.append(talk.relay(command))
        if talk.number == 1:
            yield b"+OK\r\n" if len(replies) == 1 else replies[-2]
        else:
            yield replies[-1]

    with Wire(honest, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=2_000)
        warm(guard)
        wire.answer = out_of_step
        outage(guard, "a reply too many comes first", "malformed reply")
        with pytest.raises(Denied):
            guard.attempt("login", **OMAR)
        assert len(wire.talks) == 2


def test_a_second_reply_in_the_buffer_is_never_read(
    valkey_server: EmbeddedValkey, guard_factory: Guards, full: None
) -> None:
    """Two replies to one question: the one left over answers nobody."""

    def twice(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield talk.relay(command) * (2 if talk.number == 1 else 1)

    with Wire(honest, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=2_000)
        warm(guard)
        wire.answer = twice
        assert guard.attempt("login", **VERA).decision.allowed
        with pytest.raises(Denied):
            guard.attempt("login", **OMAR)
        assert len(wire.talks) == 2


def test_a_connection_closed_while_idle_costs_nothing(
    valkey_server: EmbeddedValkey, guard_factory: Guards
) -> None:
    """A server that closes idle connections is no outage: the next attempt makes a new one."""

    def last_words(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield talk.relay(command)
        yield CLOSE

    with Wire(honest, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=2_000)
        warm(guard)
        wire.answer = last_words
        for remaining in (4, 3, 2):
            assert guard.attempt("login", **VERA).decision.verdicts[0].remaining == remaining
            for talk in wire.talks:
                talk.over.wait(10)
