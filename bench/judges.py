"""
What an algorithm's definition says of each answer, judged from the answers' own times alone.

Nobody outside of a limiter knows at which instant it decided, only that this was between asking
and being answered. So an answer is called wrong only if it is wrong wherever in between the
decisions fell: what an edge leaves open is nobody's fault.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["JUDGES", "Answer", "Verdict", "most_within"]

#: Clocks of whole milliseconds are behind by up to one, at either end of a span (s).
ROUNDING: Final = 0.002


@dataclass(frozen=True, slots=True)
class Answer:
    """
    One answer of a limiter, in seconds of one clock.

    Attributes:
        before: When it was asked.
        after: When it had answered.
        admitted: What it said.
    """

    before: float
    after: float
    admitted: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    How often a limiter's answers were not those of its definition.

    Attributes:
        too_many: Admitted where the definition refuses.
        too_few: Refused where the definition admits.
        beyond: By how many places it went beyond the definition at most.
    """

    too_many: int
    too_few: int
    beyond: float


#: Lowest and highest number of places that may be free for the answer, by the definition.
_Room: TypeAlias = tuple[float, float]


def _judge(answers: Sequence[Answer], room: Callable[[list[Answer], Answer], _Room]) -> Verdict:
    admitted: list[Answer] = []
    too_many, too_few, beyond = 0, 0, 0.0
    for answer in answers:
        low, high = room(admitted, answer)
        if answer.admitted:
            if high < 1 - 1e-9:
                too_many, beyond = too_many + 1, max(beyond, 1 - high)
            admitted.append(answer)
        else:
            too_few += low >= 1
    return Verdict(too_many, too_few, round(beyond, 1))


def judge_log(answers: Sequence[Answer], limit: int, window: float) -> Verdict:
    """At most ``limit`` in any window; what was admitted at t counts while now < t + window."""

    def room(admitted: list[Answer], now: Answer) -> _Room:
        surely = sum(now.after - it.before < window - ROUNDING for it in admitted)
        maybe = sum(now.before - it.after < window + ROUNDING for it in admitted)
        return limit - maybe, limit - surely

    return _judge(answers, room)


def _within(answer: Answer, begins: float, window: float, slack: float) -> tuple[int, int]:
    """Number the first and the last window in which a decision may have fallen."""
    first = max(0, math.floor((answer.before - slack - begins) / window))
    return first, math.floor((answer.after + slack - begins) / window)


def judge_fixed(answers: Sequence[Answer], limit: int, window: float) -> Verdict:
    """At most ``limit`` in each window of the clock."""

    def room(admitted: list[Answer], now: Answer) -> _Room:
        first, last = _within(now, 0, window, ROUNDING)
        spans = [_within(it, 0, window, ROUNDING) for it in admitted]
        counts = [
            (
                sum(span == (number, number) for span in spans),
                sum(span[0] <= number <= span[1] for span in spans),
            )
            for number in (first, last)
        ]
        return limit - max(maybe for _, maybe in counts), limit - min(sure for sure, _ in counts)

    return _judge(answers, room)


def judge_from_first(answers: Sequence[Answer], limit: int, window: float) -> Verdict:
    """At most ``limit`` in each window, where one begins with the first ask after the last."""
    ends, vague, used, sure = -math.inf, 0.0, 0, True
    too_many = too_few = beyond = 0
    for answer in answers:
        middle, half = (answer.before + answer.after) / 2, (answer.after - answer.before) / 2
        near_its_end = abs(middle - ends) < half + vague + ROUNDING
        if middle >= ends:
            sure = not near_its_end
            ends, vague, used = middle + window, half, 0
        open_ = near_its_end or not sure
        if answer.admitted:
            used += 1
            if used > limit and not open_:
                too_many, beyond = too_many + 1, max(beyond, used - limit)
        else:
            too_few += used < limit and not open_
    return Verdict(too_many, too_few, beyond)


def _judge_counter(
    answers: Sequence[Answer], limit: int, window: float, begins: float, slack: float
) -> Verdict:
    def estimate(admitted: list[Answer], number: int, time: float, *, surely: bool) -> float:
        spans = [_within(it, begins, window, slack) for it in admitted]
        current, previous = (
            sum(span == (n, n) if surely else span[0] <= n <= span[1] for span in spans)
            for n in (number, number - 1)
        )
        covered = 1 - (time - begins - number * window) / window
        return current + previous * min(1.0, max(0.0, covered))

    def room(admitted: list[Answer], now: Answer) -> _Room:
        numbers = _within(now, begins, window, slack)
        late, early = now.after + slack, now.before - slack
        least = min(estimate(admitted, number, late, surely=True) for number in numbers)
        most = max(estimate(admitted, number, early, surely=False) for number in numbers)
        return limit - most, limit - least

    return _judge(answers, room)


def judge_counter(answers: Sequence[Answer], limit: int, window: float) -> Verdict:
    """At most ``limit`` by the estimate from this window of the clock and the one before."""
    return _judge_counter(answers, limit, window, 0, ROUNDING)


def judge_counter_from_first(answers: Sequence[Answer], limit: int, window: float) -> Verdict:
    """The same, with windows that follow on from the first ask after a window without any."""
    chains: list[list[Answer]] = []
    begins = latest = -math.inf
    for answer in answers:
        middle = (answer.before + answer.after) / 2
        if not chains or middle >= latest + 2 * window:
            chains.append([])
            begins = middle
        latest = begins + (middle - begins) // window * window
        chains[-1].append(answer)
    verdicts = []
    for chain in chains:
        first = chain[0]
        slack = ROUNDING + first.after - first.before
        begins = (first.before + first.after) / 2
        verdicts.append(_judge_counter(chain, limit, window, begins, slack))
    return Verdict(
        sum(it.too_many for it in verdicts),
        sum(it.too_few for it in verdicts),
        max(it.beyond for it in verdicts),
    )


def judge_bucket(answers: Sequence[Answer], limit: int, window: float) -> Verdict:
    """A full bucket of ``limit``, refilled at ``limit`` a window: never more than both together."""
    rate = limit / window

    def room(admitted: list[Answer], now: Answer) -> _Room:
        low = high = float(limit)
        for since, it in enumerate(admitted):
            taken = len(admitted) - since
            low = min(low, limit - taken + rate * (now.before - it.after - ROUNDING))
            high = min(high, limit - taken + rate * (now.after - it.before + ROUNDING))
        return low, high

    return _judge(answers, room)


#: By the definition's name.
JUDGES: Final = {
    "log": judge_log,
    "fixed": judge_fixed,
    "fixed, from the first ask": judge_from_first,
    "counter": judge_counter,
    "counter, from the first ask": judge_counter_from_first,
    "bucket": judge_bucket,
}


def most_within(answers: Sequence[Answer], window: float) -> int:
    """Count the most that were surely admitted within one window's length."""
    admitted = [answer for answer in answers if answer.admitted]
    return max(
        (
            sum(it.after - opening.before < window - ROUNDING for it in admitted[first:])
            for first, opening in enumerate(admitted)
        ),
        default=0,
    )
