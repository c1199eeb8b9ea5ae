"""A charge is sent once: however its reply is lost, the store counts it at most once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from authguard import StoreUnavailable

from .conftest import VERA, stopped, warm
from .wire import CLOSE, Wire, honest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard import Guard
    from authguard.testing import EmbeddedValkey

    from .conftest import Guards, Outage
    from .wire import Step, Talk


def entries(guard: Guard) -> int:
    """Count what stands in vera's log of the day."""
    day = guard.peek("login", account="vera").verdicts[1]
    assert day.name == "day"
    return day.limit - day.remaining


def swallow(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Run the command and keep its reply."""
    talk.relay(command)
    yield 3600.0


def cut(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Run the command and close in the middle of its reply."""
    yield talk.relay(command)[:-7]
    yield CLOSE


def hang_up(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Run the command and close instead of answering."""
    talk.relay(command)
    yield CLOSE


def lose(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Lose the command on its way."""
    yield 3600.0


@pytest.mark.parametrize(
    ("fault", "counted"),
    [(swallow, 1), (cut, 1), (hang_up, 1), (lose, 0)],
    ids=["reply swallowed", "reply cut", "hung up on", "command lost"],
)
def test_a_lost_reply_is_not_asked_for_again(
    valkey_server: EmbeddedValkey,
    guard_factory: Guards,
    outage: Outage,
    fault: Callable[[Talk, list[bytes]], Iterator[Step]],
    counted: int,
) -> None:
    """A87: three attempts whose replies are lost are three EVALSHA and at most three entries."""
    direct = guard_factory()
    direct.attempt("login", account="omar", client="192.0.2.7")  # the script is in the cache
    with Wire(honest, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=200)
        warm(guard)
        wire.commands.clear()
        wire.answer = fault
        for _ in range(3):
            outage(guard, f"through a proxy: {fault.__name__}", "timeout", "connection")
        assert wire.verbs() == ["EVALSHA"] * 3
        assert entries(direct) == 3 * counted
        wire.answer = honest
        guard_factory(store=wire.url).attempt("login", **VERA)
        assert entries(direct) == 3 * counted + 1


def test_a_lost_settlement_is_not_sent_again(
    valkey_server: EmbeddedValkey, guard_factory: Guards
) -> None:
    """A87: a success whose settlement's reply is lost asks once, and a second call asks nothing."""
    direct = guard_factory()
    with Wire(honest, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=1_000)
        warm(guard)
        attempt = guard.attempt("login", **VERA)
        direct.attempt("login", account="omar", client="192.0.2.7").succeed()
        wire.commands.clear()
        wire.answer = swallow
        attempt.succeed()
        attempt.succeed()
        attempt.release()
        assert wire.verbs() == ["EVALSHA"]
    assert attempt.succeeded
    assert not attempt.settled
    assert entries(direct) == 0


def never_cached(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Know no script, whatever is sent."""
    yield b"-NOSCRIPT No matching script.\r\n"


def test_a_server_that_never_knows_the_script_is_asked_twice(
    guard_factory: Guards, outage: Outage
) -> None:
    """B053: NOSCRIPT is answered with the text once; NOSCRIPT again is an outage, not a loop."""
    with Wire(never_cached) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=2_000)
        outage(guard, "NOSCRIPT without end", "script cache")
    assert wire.verbs() == ["EVALSHA", "EVAL"]


def test_a_lost_reply_to_the_text_is_not_asked_for_again(
    valkey_server: EmbeddedValkey, guard_factory: Guards, outage: Outage
) -> None:
    """B053, A88: the text sent after NOSCRIPT is a charge like any other, and never sent twice."""

    def swallow_text(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        if command[0] == b"EVALSHA":
            yield from never_cached(talk, command)
        else:
            yield from swallow(talk, command)

    with Wire(swallow_text, valkey_server.port) as wire:
        guard = guard_factory(store=wire.url, deadline_ms=200)
        outage(guard, "NOSCRIPT, then the reply to EVAL is lost", "timeout")
        assert wire.verbs() == ["EVALSHA", "EVAL"]
    assert entries(guard_factory()) == 1


def test_what_a_frozen_server_finds_when_it_wakes_is_counted_no_more(
    own_valkey: EmbeddedValkey, own_client: valkey.Valkey, guard_factory: Guards, outage: Outage
) -> None:
    """A87: attempts that were answered with 503 and run when the server wakes count nowhere."""
    guard = guard_factory(store=own_valkey.url, deadline_ms=200)
    patient = guard_factory(store=own_valkey.url)
    warm(guard)  # from its answer the server's clock is known
    patient.attempt("login", **VERA)
    own_client.config_resetstat()
    with stopped(own_valkey):
        for _ in range(3):
            outage(guard, "SIGSTOP, woken later", "timeout")
        time.sleep(0.2)
    patient.peek("login", **VERA)
    assert own_client.info("commandstats")["cmdstat_evalsha"]["calls"] >= 4
    assert entries(patient) == 1
    guard.attempt("login", **VERA)


def test_before_the_first_answer_a_late_charge_stays(
    own_valkey: EmbeddedValkey, guard_factory: Guards, outage: Outage
) -> None:
    """Where the server's clock is not known yet, what it finds when it wakes is counted once."""
    guard = guard_factory(store=own_valkey.url, deadline_ms=200)
    patient = guard_factory(store=own_valkey.url)
    patient.attempt("login", **VERA)
    with stopped(own_valkey):
        outage(guard, "SIGSTOP before the first answer, woken later", "timeout")
    assert 1 <= entries(patient) <= 2


def test_a_clock_set_forward_costs_one_answer(
    valkey_url: str, client: valkey.Valkey, guard_factory: Guards
) -> None:
    """What comes too late by a clock that was set forward is refused once, and charged nowhere."""
    guard = guard_factory(deadline_ms=1_000)
    guard.attempt("login", **VERA)
    ahead = guard.store._last_moments._ahead_ms
    (node,) = ahead
    ahead[node] -= 60_000  # as if the server's clock had gone a minute on since
    with pytest.raises(StoreUnavailable, match=r"^too late$"):
        guard.attempt("login", **VERA)
    assert entries(guard) == 1
    assert guard.attempt("login", **VERA).decision.allowed
