"""Inside freezegun's frozen time an awaited guard limits and never hangs, as docs/asgi.md says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from freezegun import freeze_time

from authguard import Denied, StoreUnavailable
from tests.stores.wire import Wire

from .conftest import VERA, a_guard, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Clock
    from tests.stores.wire import Step, Talk

SANE_S = 5.0


def _real_s() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@pytest.mark.parametrize("real_asyncio", [False, True])
@pytest.mark.parametrize("tick", [False, True])
def test_the_sixth_attempt_in_frozen_time_is_refused(
    valkey_url: str, tick: bool, real_asyncio: bool
) -> None:
    """B129: five attempts, then a refusal with an honest wait, and no hang, ticking or not."""

    async def story() -> int:
        async with a_guard(valkey_url) as guard:
            for _ in range(5):
                await guard.attempt("login", **VERA)
            with pytest.raises(Denied) as refused:
                await guard.attempt("login", **VERA)
            return refused.value.retry_after

    begun_s = _real_s()
    with freeze_time("2020-01-01", tick=tick, real_asyncio=real_asyncio):
        assert 890 <= run(story()) <= 900
    assert _real_s() - begun_s < SANE_S


@pytest.mark.parametrize("settings", [{"tick": True}, {"real_asyncio": True}])
def test_the_deadline_passes_in_frozen_time(settings: dict[str, bool]) -> None:
    """B129: a silent server costs one deadline where the loop's own time goes on."""

    def silence(talk: Talk, command: list[bytes]) -> Iterator[Step]:
        yield 3600.0

    async def story(url: str) -> None:
        async with a_guard(url, deadline_ms=200) as guard:
            with pytest.raises(StoreUnavailable, match=r"^timeout$"):
                await guard.attempt("login", **VERA)

    begun_s = _real_s()
    with Wire(silence) as wire, freeze_time("2020-01-01", **settings):
        run(story(wire.url))
    assert _real_s() - begun_s < SANE_S


def test_a_clock_of_ones_own_moves_the_limits(valkey_url: str, clock: Clock) -> None:
    """B129: the documented clock for tests: 900 s on, the log is free, to the millisecond."""

    async def story() -> None:
        async with a_guard(valkey_url, clock=clock) as guard:
            for _ in range(5):
                await guard.attempt("login", **VERA)
            clock.advance(899_999)
            with pytest.raises(Denied) as refused:
                await guard.attempt("login", **VERA)
            assert refused.value.decision.retry_after_ms == 1
            clock.advance(1)
            assert (await guard.attempt("login", **VERA)).decision.verdicts[0].remaining == 4

    run(story())
