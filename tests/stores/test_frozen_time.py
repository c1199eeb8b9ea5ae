"""Inside freezegun's frozen time nothing hangs, limits limit, and a guard's clock can be moved."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from freezegun import freeze_time

from authguard import Denied, StoreUnavailable
from authguard.stores.valkey import ValkeyStore

from .conftest import SANE_S, VERA, held, stopped, warm
from .wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from authguard.testing import EmbeddedValkey

    from .conftest import Guards, NoteTime
    from .wire import Step, Talk


def _real_s() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@pytest.mark.parametrize("tick", [False, True])
def test_the_sixth_attempt_in_frozen_time_is_refused(guard_factory: Guards, tick: bool) -> None:
    """B129: five attempts, then a refusal with an honest wait, and no hang, ticking or not."""
    guard = guard_factory()
    begun = _real_s()
    with freeze_time("2020-01-01", tick=tick):
        for _ in range(5):
            guard.attempt("login", **VERA)
        with pytest.raises(Denied) as refused:
            guard.attempt("login", **VERA)
    assert 890 <= refused.value.retry_after <= 900
    assert _real_s() - begun < SANE_S


def test_the_deadline_passes_in_frozen_time(
    own_valkey: EmbeddedValkey, guard_factory: Guards, note_time: NoteTime
) -> None:
    """B129: a server that is silent while time is frozen still costs one deadline only."""
    store = ValkeyStore(own_valkey.url, deadline_ms=100, connections=1)
    guard = guard_factory(store=store)
    warm(guard)
    with stopped(own_valkey), freeze_time("2020-01-01"):
        for case in ("connection in use", "new connection"):
            begun = _real_s()
            with pytest.raises(StoreUnavailable, match=r"^timeout$"):
                guard.attempt("login", **VERA)
            note_time(f"SIGSTOP in frozen time, {case}", 0.1, _real_s() - begun, "timeout")
            assert _real_s() - begun < SANE_S


def test_dripping_bytes_end_in_frozen_time(guard_factory: Guards, note_time: NoteTime) -> None:
    """B129: a reply that drips while time is frozen is given up at the deadline all the same."""

    def drip(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield b"$400000000\r\n"
        while True:
            yield b"1"
            yield 0.02

    with Wire(drip) as wire, freeze_time("2020-01-01"):
        guard = guard_factory(store=wire.url, deadline_ms=100)
        begun = _real_s()
        with pytest.raises(StoreUnavailable, match=r"^timeout$"):
            guard.attempt("login", **VERA)
        note_time("drips a byte every 20 ms, in frozen time", 0.1, _real_s() - begun, "timeout")
        assert _real_s() - begun < SANE_S


def test_the_wait_for_a_connection_ends_in_frozen_time(
    valkey_url: str, guard_factory: Guards, note_time: NoteTime
) -> None:
    """B129: who waits for a lent connection while time is frozen is refused at the deadline."""
    store = ValkeyStore(valkey_url, deadline_ms=100, connections=1)
    guard = guard_factory(store=store)
    warm(guard)
    with held(store), freeze_time("2020-01-01"):
        begun = _real_s()
        with pytest.raises(StoreUnavailable, match=r"^timeout$"):
            guard.attempt("login", **VERA)
        note_time("every connection is lent, in frozen time", 0.1, _real_s() - begun, "timeout")
        assert _real_s() - begun < SANE_S


def test_a_clock_of_ones_own_follows_freezegun(guard_factory: Guards) -> None:
    """B129: the documented clock for tests moves with freezegun: 900 s on, the log is free."""
    guard = guard_factory(clock=lambda: int(time.time() * 1000))
    with freeze_time("2020-01-01") as frozen:
        for _ in range(5):
            assert guard.attempt("login", **VERA).decision.now_ms == 1_577_836_800_000
        frozen.tick(899.999)
        with pytest.raises(Denied) as refused:
            guard.attempt("login", **VERA)
        assert refused.value.decision.retry_after_ms == 1
        assert refused.value.retry_after == 1
        frozen.tick(0.001)
        assert guard.attempt("login", **VERA).decision.verdicts[0].remaining == 4
