"""What an operator blocks is refused everywhere, until its end or until it is lifted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from authguard import Cleared, SlidingLog
from authguard._core import calls
from authguard._core.keys import Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    import valkey

    from authguard import Decision
    from tests.conftest import Clock
    from tests.lua.conftest import Gate

HOUR, TEN_YEARS = 3_600_000, 3_650 * 86_400_000
WHO = {"account": "vera", "client": "203.0.113.9", "network": "203.0.113.0"}
BYS = [("account",), ("client",), ("network",), ("account", "client")]


class Blocks:
    """Sets and lifts blocks beside a gate."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def binding(self, by: tuple[str, ...]) -> calls.Binding:
        """Name one block's keys."""
        shape = Shape.of_block(by, secrets=len(self.gate.pseudonyms))
        return shape.bind(*self.gate.named(WHO))

    def set(self, by: tuple[str, ...], life_ms: int = 0) -> int | None:
        """Set a block."""
        call = calls.set_block(self.binding(by), life_ms=life_ms, now_ms=self.gate.now_ms)
        return self.gate.store.run(call)

    def lift(self, by: tuple[str, ...]) -> Cleared:
        """Lift a block."""
        return self.gate.store.run(calls.clear(self.binding(by), now_ms=self.gate.now_ms))

    def decide(self, **who: str) -> Decision:
        """Try, with blocks."""
        return self.gate.attempt(blocks=True, **WHO | who).decision


@pytest.fixture(params=[1, 2], ids="{} secrets".format)
def blocks(gate: Callable[..., Gate], request: pytest.FixtureRequest) -> Blocks:
    """Give blocks beside one wide log, under one secret or two."""
    return Blocks(gate(("account", SlidingLog("100/1h")), secrets=request.param))


@pytest.mark.parametrize("by", BYS, ids="+".join)
def test_a_block_refuses_whom_it_names(blocks: Blocks, by: tuple[str, ...], clock: Clock) -> None:
    """A block with an end refuses until that millisecond, tells the true wait, charges nothing."""
    assert blocks.set(by, HOUR) == clock.now_ms + HOUR
    clock.advance(1_000)
    decision = blocks.decide()
    assert decision.refused_by == ("block",)
    assert decision.retry_after_ms == HOUR - 1_000
    (log, block) = decision.verdicts
    assert (log.remaining, block.limit, block.locked, block.remaining) == (100, 0, True, 0)
    for part in by:
        assert blocks.decide(**{part: "another"}).allowed
    clock.advance(HOUR - 1_001)
    assert blocks.decide().retry_after_ms == 1
    clock.advance(1)
    decision = blocks.decide()
    assert decision.allowed
    assert [verdict.name for verdict in decision.verdicts] == ["l0"]


def test_a_block_without_an_end(
    gate: Callable[..., Gate], client: valkey.Valkey, clock: Clock
) -> None:
    """It stands until it is lifted, tells no true wait, and its key has an expiry all the same."""
    blocks = Blocks(gate(("account", SlidingLog("100/1h")), own_clock=True))
    assert blocks.set(("account",)) is None
    (key,) = client.scan_iter()
    assert TEN_YEARS - 10_000 < client.pttl(key) <= TEN_YEARS
    assert client.strlen(key) == 12
    assert blocks.decide().retry_after_ms == 900_000
    assert blocks.lift(("account",)) == Cleared(0, 1)
    assert blocks.lift(("account",)) == Cleared(0, 0)
    assert blocks.decide().allowed


def test_nothing_but_its_own_lifting_lifts_it(blocks: Blocks) -> None:
    """Rule 5: no success, clear of the limits or recovery touches an operator's block."""
    pending = blocks.gate.attempt(blocks=True, **WHO)
    blocks.set(("account", "client"))
    pending.succeed()
    blocks.gate.clear(**WHO)
    blocks.gate.recover(**WHO)
    binding = blocks.gate.bind(blocks=True, **WHO)
    for verb in (calls.clear, calls.recover):
        blocks.gate.store.run(verb(binding, now_ms=blocks.gate.now_ms))
    run = blocks.gate.store.run
    assert run(calls.recover(blocks.binding(("account", "client")), now_ms=None)) == Cleared(0, 0)
    assert blocks.decide().refused_by == ("block",)


def test_it_holds_for_every_action(gate: Callable[..., Gate]) -> None:
    """One key for all actions: a block set beside one action refuses in another."""
    one = Blocks(gate(("account", SlidingLog("100/1h"))))
    other = Blocks(gate(("client", SlidingLog("5/1h"))))
    object.__setattr__(other.gate.policy, "action", "another")
    one.set(("account",))
    assert other.decide().refused_by == ("block",)


def test_an_operator_sees_it(blocks: Blocks, clock: Clock) -> None:
    """Inspect tells every block that could apply: when it was set, and its end."""
    blocks.set(("client",), HOUR)
    clock.advance(5)
    blocks.set(("account",))
    binding = blocks.gate.bind(blocks=True, **WHO)
    usages = blocks.gate.store.run(calls.inspect(binding, now_ms=clock.now_ms))
    assert [(usage.by, usage.used, usage.endless, usage.locked_until_ms, usage.lock_set_at_ms)
            for usage in usages[1:]] == [
        (("account",), 1, True, None, clock.now_ms),
        (("client",), 1, False, clock.now_ms - 5 + HOUR, clock.now_ms - 5),
        (("network",), 0, False, None, None),
        (("account", "client"), 0, False, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("back_ms", [1, HOUR, 10_000 * HOUR])
def test_under_a_clock_that_steps_back(blocks: Blocks, clock: Clock, back_ms: int) -> None:
    """Rule 7: a block lasts at most its own length more, told once and kept to."""
    blocks.set(("client",), HOUR)
    clock.advance(-back_ms)
    assert blocks.decide().retry_after_ms == HOUR
    clock.advance(1_000)
    assert blocks.decide().retry_after_ms == HOUR - 1_000
    clock.advance(HOUR - 1_000)
    assert blocks.decide().allowed
