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


class _Clock:
    """Seconds that a test sets."""

    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("hold_ms", "wait_ms", "known_s", "over_s"),
    [
        pytest.param(60, 1_000_000, 5.059, 5.061, id="as long as is set"),
        pytest.param(1_000, 1_000_000, 5.999, 6.001, id="a second at most"),
        pytest.param(1_000, 500, 5.498, 5.499, id="a millisecond less than it refuses"),
    ],
)
def test_a_refusal_is_known_from_when_the_store_was_asked(
    hold_ms: int, wait_ms: int, known_s: float, over_s: float
) -> None:
    """However late the answer came, its time runs from before the store was asked."""
    clock, bound = _Clock(), vera()
    refusals = Refusals(hold_ms, clock)
    asked, clock.now_s = refusals.begin(), 5.02
    verdict = FULL._replace(retry_after_ms=wait_ms)
    refusals.keep(bound, 1, Decision("login", False, (verdict,), 0), asked)
    clock.now_s = known_s
    assert refusals.repeat(bound.shape, VERA, 1) is not None
    clock.now_s = over_s
    assert refusals.repeat(bound.shape, VERA, 1) is None


def test_all_times_of_a_repeat_are_older() -> None:
    """Its wait, when nothing is held any more, and the moment of the decision are of now."""
    clock, bound = _Clock(), vera()
    refusals = Refusals(1_000, clock)
    verdict = FULL._replace(retry_after_ms=60_000, reset_after_ms=3_600_000)
    told = Decision("login", False, (verdict,), 7_000)
    refusals.keep(bound, 1, told, refusals.begin())
    clock.now_s = 5.25
    assert refusals.repeat(bound.shape, VERA, 1) == Decision(
        "login",
        False,
        (verdict._replace(retry_after_ms=59_750, reset_after_ms=3_599_750),),
        7_250,
    )


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
    """Of 12,000 different refusals in one moment the last 2,048 are known, and 4,096 at most."""
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
    assert 2_048 <= len(known) <= 4_096
    assert known == everybody[-len(known) :]
    both = (refusals._young, refusals._old)
    assert (
        max(sum(len(each.told) for each in both), sum(len(each.stamps) for each in both)) <= 4_096
    )
