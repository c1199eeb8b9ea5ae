"""One limit by itself: `guard.limiter(...)`, keyed by any text."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from authguard import InvalidInput, SlidingLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard import Guard
    from tests.conftest import Clock


def test_hit_peek_reset(guard_factory: Callable[..., Guard], clock: Clock) -> None:
    """A hit counts where it is admitted; a peek never does; a reset forgets one key alone."""
    limiter = guard_factory(clock=clock).limiter(SlidingLog("3/1m"))
    for remaining in (2, 1, 0):
        assert limiter.peek("a").remaining == remaining + 1
        decision = limiter.hit("a")
        assert (decision.allowed, decision.remaining) == (True, remaining)
    clock.advance(1000)
    refused = limiter.hit("a")
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, 0, 59)
    assert limiter.hit("b", 3).remaining == 0
    assert limiter.reset("a").entries == 3
    assert limiter.hit("a").remaining == 2
    assert not limiter.peek("b").allowed


def test_costs(guard_factory: Callable[..., Guard], clock: Clock) -> None:
    """B012: limit 10: 5 in, 100 is an error that names cost and limit, 5 in, 1 refused."""
    limiter = guard_factory(clock=clock).limiter(SlidingLog("10/1m"))
    assert limiter.hit("a", 5).remaining == 5
    with pytest.raises(ValueError, match="cost: 100 is more than the limit 10"):
        limiter.hit("a", 100)
    assert limiter.peek("a").remaining == 5
    assert limiter.hit("a", 5).remaining == 0
    assert not limiter.hit("a").allowed


def test_fifty_threads(guard_factory: Callable[..., Guard]) -> None:
    """B002: 50 parallel hits with limit 1000 leave 950."""
    limiter = guard_factory().limiter(SlidingLog("1000/15m"))
    with ThreadPoolExecutor(50) as pool:
        assert all(decision.allowed for decision in pool.map(limiter.hit, ["a"] * 50))
    assert limiter.peek("a").remaining == 950


def test_names_and_numbers(guard_factory: Callable[..., Guard], clock: Clock) -> None:
    """Limiters of one name share their logs, as do nameless ones of equal numbers; no others do."""
    guard = guard_factory(clock=clock)
    guard.limiter(SlidingLog("3/1m")).hit("a")
    assert guard.limiter(SlidingLog("3/1m")).peek("a").remaining == 2
    assert guard.limiter(SlidingLog("3/2m")).peek("a").remaining == 3
    assert guard.limiter(SlidingLog("3/1m"), name="mail").hit("a").remaining == 2
    assert guard.limiter(SlidingLog("9/1h"), name="mail").peek("a").remaining == 8


@pytest.mark.parametrize("key", [None, 5, b"a", ["a"]], ids=repr)
def test_a_key_is_text(guard_factory: Callable[..., Guard], key: Any) -> None:
    """Anything but text is no key, and shares none with others."""
    with pytest.raises(InvalidInput, match="key: must be text"):
        guard_factory().limiter(SlidingLog("3/1m")).hit(key)
