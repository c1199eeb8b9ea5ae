"""The memory of refusals by itself: what crosses a call, what is told once, and how much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from authguard import Decision, Policy, PolicyLimit
from authguard._core.groups import Bound
from authguard._core.keys import Shape
from authguard._core.refusals import Refusals
from authguard.decision import Verdict
from authguard.limits import Distinct, SlidingLog

if TYPE_CHECKING:
    from collections.abc import Callable

BY_ACCOUNT: Final = PolicyLimit("block", ("account",), SlidingLog("1/1h"))
FULL: Final = Verdict("block", 1, 3_600_000, True, False, False, 0, 1_000_000, 1_000_000)
REFUSED: Final = Decision("login", False, (FULL,), 0)
VERA: Final = {"account": bytes(32)}


def vera() -> Bound:
    """Bind one limit, which is called as operators' blocks are, to an account."""
    shape = Shape.of(Policy("login", (BY_ACCOUNT,)), frozenset({"account"}))
    return Bound.of(shape, [VERA], spread=False)


def test_what_is_given_back_as_a_refusal_comes_is_not_remembered() -> None:
    """A place given back between two of its lines leaves nothing that would be told."""
    bound, happens = vera(), list["Callable[[], object]"]()

    def clock() -> float:
        if happens:
            happens.pop()()
        return 5.0

    refusals = Refusals(1_000, clock)
    asked = refusals.begin()
    happens.append(lambda: refusals.forget(bound))
    refusals.keep(bound, 1, REFUSED, asked)
    assert happens == []
    assert refusals.repeat(bound.shape, VERA, 1) is None


def test_a_lock_is_told_once() -> None:
    """Whoever is told that a lock was set is told that once; the next one asks."""
    bound, refusals = vera(), Refusals(1_000, lambda: 5.0)
    setting = Decision("login", False, (FULL._replace(locked=True, lock_set=True),), 0)
    refusals.keep(bound, 1, setting, refusals.begin())
    assert refusals.repeat(bound.shape, VERA, 1) is None


def test_a_limit_that_is_named_as_a_block_may_have_given_back() -> None:
    """An operators' block that refuses says nothing of a limit of its name."""
    bound, refusals = vera(), Refusals(1_000, lambda: 5.0)
    block = Decision("login", False, (FULL._replace(window_ms=0),), 0)
    for refused, remembered in ((REFUSED, True), (block, False)):
        refusals.keep(bound, 1, REFUSED, refusals.begin())
        refusals.forget(bound, refused)
        assert (refusals.repeat(bound.shape, VERA, 1) is not None) is remembered


@pytest.mark.parametrize("differ", ["by key", "by value"])
def test_only_so_many_are_remembered(differ: str) -> None:
    """Of 12,000 different refusals in one moment the last 4,096 are known, and 8,192 at most."""
    if differ == "by key":
        limit = BY_ACCOUNT
    else:
        limit = PolicyLimit("all", ("client",), Distinct("account", "1/1h"))
    shape = Shape.of(Policy("login", (limit,)), frozenset({"account", "client"}))
    refusals = Refusals(1_000, lambda: 5.0)
    everybody = [{"account": b"%-32d" % number, "client": bytes(32)} for number in range(12_000)]
    for of in everybody:
        bound = Bound.of(shape, [of], spread=False)
        refusals.keep(bound, 1, REFUSED, refusals.begin())
    known = [of for of in everybody if refusals.repeat(shape, of, 1) is not None]
    assert 4_096 <= len(known) <= 8_192
    assert known == everybody[-len(known) :]
    both = (refusals._young, refusals._old)
    assert (
        max(sum(len(each.told) for each in both), sum(len(each.stamps) for each in both)) <= 8_192
    )
