"""
Refusals known already: an attempt that was refused a moment ago is refused again, and no one asked.

A flood of refused tries would otherwise cost the store a call each. What is remembered is the whole
decision on just that attempt, for a second at most, and never longer than until the first of the
limits that refuse it would admit again, so time alone can't end a refusal sooner than this memory
does. It never admits, and a repeat is never told a longer wait than the one before. Another attempt
is asked for, even where it meets a limit that is known to be full: others may refuse it for longer.

Not remembered is what something else than time ends or changes: what the load alone refuses, an
account that must be recovered, an action of which a limit counts refused tries too. Whatever an
operator or an owner unlocks in this process, and whatever this guard's own attempts give back, ends
the memory of it at once; what comes from elsewhere is seen a second later at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from authguard.decision import Decision, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from authguard._core.groups import Bound
    from authguard._core.keys import Shape
    from authguard._core.steps import Steps

__all__ = ["Refusals", "unlocking"]

P = ParamSpec("P")
T = TypeVar("T")

#: Most entries of a generation; there are two, and an entry of eight limits takes three kilobytes.
_MOST: Final = 2_048


@dataclass(slots=True)
class _Told:
    """
    What an attempt was told.

    Attributes:
        decision: The decision.
        came_s: When it came.
        until_s: When the first of the limits that refuse it is to be asked again.
        stamps: Of each key that refused it, the stamp: another one, or none, stands there once
            something has been given back.
        kept: Nothing was given back or unlocked between asking the store and remembering.
        aged: The same some milliseconds later, as it was told last: a flood asks often in each.
    """

    decision: Decision
    came_s: float
    until_s: float
    stamps: list[tuple[str, object]]
    kept: bool = False
    aged: tuple[int, Decision] | None = None


class _Generation:
    """What was told within one time, and the stamps of the keys that refused it."""

    __slots__ = ("stamps", "told")

    def __init__(self) -> None:
        self.told: dict[tuple[object, ...], _Told] = {}
        self.stamps: dict[str, object] = {}


class _Era:
    """What changes where something is unlocked in this process, by whichever guard."""

    now: object = object()


def _unlocked() -> None:
    """Have every guard of this process forget: something was unlocked, or its numbers changed."""
    _Era.now = object()


def unlocking(steps: Callable[P, Steps[T]]) -> Callable[P, Steps[T]]:
    """Make steps after which nothing is remembered, whether they were answered or not."""

    @wraps(steps)
    def run(*args: P.args, **settings: P.kwargs) -> Steps[T]:
        try:
            return (yield from steps(*args, **settings))
        finally:
            _unlocked()

    return run


class Refusals:
    """
    Remembers refusals for a moment.

    No lock is taken, so that a process may fork at any moment: entries stand in two generations,
    of which the older is dropped when the younger has had its time, or is full.

    Args:
        hold_ms: For how long, in milliseconds, at most
            ``LONGEST_MEMORY_MS`` of :mod:`authguard.checks`; 0: not at all.
        clock: Gives seconds that never stop.
    """

    def __init__(self, hold_ms: int, clock: Callable[[], float]) -> None:
        self._hold_s = hold_ms / 1000
        self._clock = clock
        self._era: tuple[object, object] = (_Era.now, object())
        self._young, self._old = _Generation(), _Generation()
        self._turns_s = 0.0

    def begin(self) -> tuple[float, object]:
        """Give the moment before the store is asked, for :meth:`keep`."""
        return self._clock(), self._era

    def repeat(self, shape: Shape, of: Mapping[str, bytes], cost: int) -> Decision | None:
        """
        Give the decision on an attempt that was refused just so; None: ask the store.

        Args:
            shape: Its limits.
            of: The pseudonyms of what it names, under the first secret.
            cost: What it costs.
        """
        if self._era[0] is not _Era.now:
            self._young, self._old = _Generation(), _Generation()
            self._era = (_Era.now, object())  # last, as another thread may look meanwhile
        generation = self._young
        if not generation.told and not self._old.told:
            return None
        whom = _whom(shape, of, cost)
        told = generation.told.get(whom)
        if told is None:
            generation = self._old
            told = generation.told.get(whom)
        if told is None or not told.kept:
            return None
        for key, stamp in told.stamps:
            if generation.stamps.get(key) is not stamp:
                return None
        now_s = self._clock()
        if now_s >= told.until_s:
            return None
        age_ms, said = int(1000 * (now_s - told.came_s)), told.aged
        if said is None or said[0] != age_ms:
            verdicts = tuple([_aged(verdict, age_ms) for verdict in told.decision.verdicts])
            now_ms = told.decision.now_ms + age_ms
            said = told.aged = age_ms, Decision(shape.action, False, verdicts, now_ms)
        return said[1]

    def keep(
        self, bound: Bound, cost: int, decision: Decision, asked: tuple[float, object]
    ) -> None:
        """
        Remember a refusal.

        Args:
            bound: What the attempt was bound to.
            cost: What it costs.
            decision: What the store said.
            asked: What :meth:`begin` gave. If something has been given back or unlocked since,
                nobody knows which of the two the store saw first.
        """
        asked_s, era = asked
        if not self._hold_s or era is not self._era or self._era[0] is not _Era.now:
            return
        refusing = [verdict for verdict in decision.verdicts if verdict.refuses]
        if bound.shape.counts_refused or not all(map(_lasts, refusing)):
            return
        if any(verdict.lock_set for verdict in decision.verdicts):
            return  # a lock is told once
        came_s = self._clock()
        young = self._young
        if came_s >= self._turns_s or max(len(young.told), len(young.stamps)) >= _MOST:
            self._old, self._young = young, _Generation()
            self._turns_s = came_s + self._hold_s
            young = self._young
        # A millisecond less, as the store may have been asked late in its own.
        wait_ms = min(verdict.retry_after_ms for verdict in refusing) - 1
        until_s = asked_s + min(self._hold_s, wait_ms / 1000)
        names = {verdict.name for verdict in refusing}
        keys = [key for key, name in _keys(bound) if name in names]
        stamps = [(key, young.stamps.setdefault(key, object())) for key in keys]
        told = _Told(decision, came_s, until_s, stamps)
        young.told[_whom(bound.shape, bound.bindings[0].pseudonyms[0], cost)] = told
        # Last, so that whoever forgets or unlocks meanwhile either finds the entries or is seen.
        if era is self._era and self._era[0] is _Era.now:
            told.kept = True

    def forget(self, bound: Bound, refused: Decision | None = None) -> None:
        """
        Forget what is remembered of an attempt's limits: something was given back in them.

        Args:
            bound: What the attempt was bound to.
            refused: The refusal, where it was refused; who refuses has nothing to give back.
        """
        self._era = (self._era[0], object())
        # A block has no window, and a limit may be called like one: it may have given back.
        kept = {
            verdict.name
            for verdict in (() if refused is None else refused.verdicts)
            if verdict.refuses and verdict.window_ms
        }
        for key, name in _keys(bound):
            if name not in kept:
                self._young.stamps.pop(key, None)
                self._old.stamps.pop(key, None)


def _keys(bound: Bound) -> Iterator[tuple[str, str]]:
    """
    List the limits' keys and names; under several secrets the first one's keys stand for all.

    The operators' blocks are not among them: no attempt gives one back.
    """
    secrets = bound.shape.secrets if len(bound.bindings) > 1 else 1
    for binding in bound.bindings[::secrets]:
        names = binding.shape.names
        first = len(names.heads) * binding.shape.secrets
        for limit, at in zip(binding.shape.limits, names.logs, strict=True):
            yield binding.keys[first + at], limit.name


def _whom(shape: Shape, of: Mapping[str, bytes], cost: int) -> tuple[object, ...]:
    return shape, cost, *of.values()


def _lasts(refusing: Verdict) -> bool:
    """
    Tell whether nothing but time, or what is said to us, ends it.

    What no wait would end must be told as it is, and an account that must be recovered is refused
    in two ways, of which the other one asks each time (``flask/sign_in.py``): equally many calls.
    """
    return refusing.retry_after_ms > 0 and not refusing.shed and not refusing.recovery


def _aged(verdict: Verdict, by_ms: int) -> Verdict:
    """Say the same so much later."""
    if not by_ms or not verdict.reset_after_ms:
        return verdict
    *before, wait_ms, reset_ms, recovery, shed, exempt, delay_ms = verdict
    if wait_ms > 0:
        wait_ms = max(1, wait_ms - by_ms)
    reset_ms = max(0, reset_ms - by_ms)
    return Verdict._make((*before, wait_ms, reset_ms, recovery, shed, exempt, delay_ms))
