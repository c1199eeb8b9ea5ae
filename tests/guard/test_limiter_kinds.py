"""Which algorithms count by themselves, and which are refused with the mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, Cooldown, Distinct, FixedWindow, SlidingLog
from authguard.limits import Conversion

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard
    from tests.conftest import Clock


@pytest.mark.parametrize(
    ("limit", "admitted"),
    [(SlidingLog("3/1h"), 3), (FixedWindow("3/1h"), 3), (Cooldown("30s"), 1)],
    ids=["SlidingLog", "FixedWindow", "Cooldown"],
)
def test_what_counts_by_itself(
    guard_factory: Callable[..., Guard], clock: Clock, limit: Any, admitted: int
) -> None:
    """Each of these refuses once it is full, for its own key alone."""
    limiter = guard_factory(clock=clock).limiter(limit)
    assert [limiter.hit("a").allowed for _ in range(5)] == [True] * admitted + [False] * (
        5 - admitted
    )
    assert limiter.hit("b").allowed


@pytest.mark.parametrize(
    "limit",
    [
        Conversion("10/50", lockout="24h"),
        "5/15m",
        b"5/15m",
        SlidingLog,
        Cooldown,
        Distinct,
        5,
        None,
        {"sliding_log": "5/15m"},
    ],
    ids=repr,
)
def test_what_can_not_count_by_itself(
    guard_factory: Callable[..., Guard], client: valkey.Valkey, limit: Any
) -> None:
    """B138: AG005 at once, with what to give: a limiter that never refused would fail open."""
    with pytest.raises(ConfigurationError, match="can't count by itself") as caught:
        guard_factory().limiter(limit, name="api")
    assert (caught.value.code, caught.value.where) == ("AG005", "limiter(…)")
    assert caught.value.mend.startswith("give another")
    assert client.keys() == []
