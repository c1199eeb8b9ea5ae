"""One algorithm by itself: any key, whole numbers, and nothing sent on wrong use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from authguard import ConfigurationError, Distinct, InvalidInput, SlidingLog

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Guard


def evalsha_calls(client: valkey.Valkey) -> int:
    """Count the EVALSHAs the server has run."""
    return client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)


def test_hit_peek_and_reset(guard_factory: Callable[..., Guard], clock: Callable[[], int]) -> None:
    """The contract's face: allowed, remaining and waits are whole numbers, and reset forgets."""
    limiter = guard_factory(clock=clock).limiter(SlidingLog("5/15m"))
    decision = limiter.hit("api-key-123", cost=2)
    assert (decision.allowed, decision.remaining) == (True, 3)
    assert (decision.retry_after_ms, decision.retry_after, decision.reset_after_ms) == (
        0,
        0,
        900_000,
    )
    assert limiter.peek("api-key-123", cost=4).retry_after_ms == 900_000
    assert limiter.hit("api-key-123", cost=3).allowed
    refused = limiter.hit("api-key-123")
    assert (refused.allowed, refused.retry_after) == (False, 900)
    assert limiter.hit("another").allowed
    assert limiter.reset("api-key-123").entries == 5
    assert limiter.hit("api-key-123", cost=5).allowed


@pytest.mark.parametrize("cost", [0, -1, 1.5, "1", True, None, 10**19])
def test_a_cost_that_is_none_is_refused_before_anything_is_sent(
    guard_factory: Callable[..., Guard], client: valkey.Valkey, cost: Any
) -> None:
    """B135: the error names the cost, and the store hears nothing."""
    limiter = guard_factory().limiter(SlidingLog("5/15m"))
    limiter.hit("a")
    before = evalsha_calls(client)
    for call in (limiter.hit, limiter.peek):
        with pytest.raises(ValueError, match="cost"):
            call("a", cost)
    assert evalsha_calls(client) == before


@pytest.mark.parametrize("key", [None, 5, b"a", "\ud800"])
def test_a_key_that_is_no_text_is_refused(guard_factory: Callable[..., Guard], key: Any) -> None:
    """What can't be keyed is InvalidInput, which never holds the key."""
    limiter = guard_factory().limiter(SlidingLog("5/15m"))
    with pytest.raises(InvalidInput, match="key: must be text"):
        limiter.hit(key)


def test_a_value_that_is_missing_is_said_to_be(guard_factory: Callable[..., Guard]) -> None:
    """Without a value a Distinct has nothing to tell apart, and others have none to be given."""
    limiter = guard_factory().limiter(Distinct("account", "2/1h"))
    for ask in (limiter.hit, limiter.peek):
        with pytest.raises(InvalidInput, match="value: is missing: it is what a Distinct tells"):
            ask("192.0.2.1")
        with pytest.raises(InvalidInput, match="value: must be text"):
            ask("192.0.2.1", value=5)  # type: ignore[arg-type]
    assert limiter.hit("192.0.2.1", value="vera").allowed
    assert limiter.reset("192.0.2.1").entries == 1
    with pytest.raises(InvalidInput, match="value: is for a Distinct"):
        guard_factory().limiter(SlidingLog("5/15m")).hit("a", value="b")


@pytest.mark.parametrize("name", [5, b"api", ["api"], "\ud800"], ids=ascii)
def test_a_name_that_is_no_text(guard_factory: Callable[..., Guard], name: Any) -> None:
    """AG005 when the limiter is made, not an error of its first hit."""
    with pytest.raises(ConfigurationError, match=r"AG005 limiter\(name=…\): .* is no text"):
        guard_factory().limiter(SlidingLog("5/15m"), name=name)


@pytest.mark.parametrize("name", [None, "", "x\r\ny", "zwölf", "a" * 5_000], ids=ascii)
def test_any_text_is_a_name(guard_factory: Callable[..., Guard], name: str | None) -> None:
    """A limiter's name is of its logs alone; its verdict goes by the name of limiter."""
    limiter = guard_factory().limiter(SlidingLog("1/15m"), name=name)
    assert [verdict.name for verdict in limiter.hit("a").verdicts] == ["limiter"]
    assert limiter.hit("a").refused_by == ("limiter",)


@pytest.mark.parametrize("key", ["", "a" * 65_536, "a:b", "x{y}", "*", "a\nSET x 1"])
def test_any_text_is_a_key_of_its_own(guard_factory: Callable[..., Guard], key: str) -> None:
    """A30: a key is never joined, cut or read as a pattern."""
    limiter = guard_factory().limiter(SlidingLog("1/15m"))
    assert limiter.hit(key).allowed
    assert not limiter.hit(key).allowed
    assert limiter.hit(key + "'").allowed


def test_limiters_of_one_name_share_their_logs(guard_factory: Callable[..., Guard]) -> None:
    """A limiter whose numbers change goes on counting under its name; others stay apart."""
    guard = guard_factory()
    guard.limiter(SlidingLog("10/15m"), name="api").hit("a", cost=8)
    lowered = guard.limiter(SlidingLog("5/15m"), name="api").peek("a")
    assert (lowered.allowed, lowered.remaining) == (False, 0)
    assert guard.limiter(SlidingLog("10/15m")).peek("a").remaining == 10
    assert guard.limiter(SlidingLog("10/15m"), name="other").peek("a").remaining == 10
