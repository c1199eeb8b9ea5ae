"""
Refusals known already: what a limit refused a moment ago it refuses again, without a round trip.

A flood of refused tries would otherwise cost the store a call each. What is remembered is when a
limit's log, under its key, will admit so many places again: for a second at most, and never longer
than the limit itself refuses, so time alone can't end a refusal sooner than this memory does. It
never admits, and nothing it says makes a wait longer.

Not remembered is what something else than time ends or changes: what the load alone refuses, an
account that must be recovered, an action of which a limit counts refused tries too. Whatever an
operator or an owner unlocks in this process, and whatever this guard's own attempts give back, ends
the memory of it at once; what comes from elsewhere is seen a second later at most.

A repeat of the same attempt is told what it was told, a moment older. Another attempt that meets a
limit known to be full, such as a blocked client's at the next account, is told of those limits
alone: the others are not asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeVar

from authguard._core.keys import MEMBER
from authguard.decision import Decision, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from authguard._core.groups import Bound
    from authguard._core.keys import Shape
    from authguard._core.steps import Steps

__all__ = ["LONGEST_MS", "Refusals", "unlocking"]

P = ParamSpec("P")
T = TypeVar("T")

#: The longest that a refusal may be remembered, in milliseconds.
LONGEST_MS: Final = 1_000

#: Most entries of a generation; there are two, and an entry takes about half a kilobyte.
_MOST: Final = 4_096

#: What stands for the operators' blocks: no limit is named so.
_BLOCK: Final = ""


@dataclass(slots=True)
class _Told:
    """
    What a whole attempt was told.

    Attributes:
        decision: The decision.
        came_s: When it came.
        until_s: When the first of the limits that refuse it is to be asked again.
        slots: Where their refusals are remembered. It may be told while all of them are there.
        kept: Nothing was given back or unlocked between asking the store and remembering.
        aged: The same some milliseconds later, as it was told last: a flood asks often in each.
    """

    decision: Decision
    came_s: float
    until_s: float
    slots: list[object]
    kept: bool = False
    aged: tuple[int, Decision] | None = None


class _Refusal(NamedTuple):
    """
    That a limit refuses an attempt, until then.

    Attributes:
        counts: The limit, whether a reserve is kept from the attempt, the places it needs, and of a
            limit that tells values apart the value: another attempt may be admitted.
        verdict: What the limit said.
        until_s: When it is to be asked again.
        told: What it was a part of.
    """

    counts: tuple[object, ...]
    verdict: Verdict
    until_s: float
    told: _Told


class _Generation:
    """What was told within one time: of whole attempts, and of single limits by their keys."""

    __slots__ = ("attempts", "limits")

    def __init__(self) -> None:
        self.attempts: dict[tuple[object, ...], _Told] = {}
        self.limits: dict[object, _Refusal] = {}


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

    No lock is taken, so that a process may fork at any moment: entries stand in two dictionaries,
    of which the older is dropped when the younger has had its time, or is full.

    Args:
        hold_ms: For how long, in milliseconds, at most ``LONGEST_MS``; 0: not at all.
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
        Give the decision on an attempt that was refused just so; None: ask on.

        Args:
            shape: Its limits.
            of: The pseudonyms of what it names, under the first secret.
            cost: What it costs.
        """
        if not self._knows(shape):
            return None
        whom = _whom(shape, of, cost)
        generation = self._young
        told = generation.attempts.get(whom)
        if told is None:
            generation = self._old
            told = generation.attempts.get(whom)
        if told is None or not told.kept:
            return None
        for slot in told.slots:
            refusal = generation.limits.get(slot)
            if refusal is None or refusal.told is not told:
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

    def find(self, bound: Bound, cost: int) -> Decision | None:
        """Give the decision on an attempt that meets a limit known to refuse it; None: ask on."""
        if not self._knows(bound.shape):
            return None
        now_s = self._clock()
        verdicts: list[Verdict] = []
        decided_ms = 0
        for slot, _, counts in _slots(bound, cost):
            refusal = self._young.limits.get(slot) or self._old.limits.get(slot)
            if refusal is None or now_s >= refusal.until_s or refusal.counts != counts:
                continue
            if not refusal.told.kept:
                continue
            age_ms = int(1000 * (now_s - refusal.told.came_s))
            verdicts.append(_aged(refusal.verdict, age_ms))
            decided_ms = max(decided_ms, refusal.told.decision.now_ms + age_ms)
        if not verdicts:
            return None
        return Decision(bound.shape.action, False, tuple(verdicts), decided_ms)

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
        lasting = {_name(verdict): verdict for verdict in decision.verdicts if _lasts(verdict)}
        if not lasting or bound.shape.counts_refused:
            return
        if any(verdict.lock_set or verdict.retry_after_ms < 0 for verdict in decision.verdicts):
            return  # a lock is told once; and what no wait would admit, the caller must be told
        came_s = self._clock()
        young = self._young
        if came_s >= self._turns_s or max(len(young.limits), len(young.attempts)) >= _MOST:
            self._old, self._young = young, _Generation()
            self._turns_s = came_s + self._hold_s
            young = self._young
        told = _Told(decision, came_s, asked_s + self._hold_s, [])
        for slot, name, counts in _slots(bound, cost):
            verdict = lasting.get(name)
            if verdict is not None:
                # The store may have been asked late in its millisecond.
                until_s = asked_s + min(self._hold_s, (verdict.retry_after_ms - 1) / 1000)
                told.until_s = min(told.until_s, until_s)
                told.slots.append(slot)
                young.limits[slot] = _Refusal(counts, verdict, until_s, told)
        of = bound.bindings[0].pseudonyms[0]
        young.attempts[_whom(bound.shape, of, cost)] = told
        # Last, so that whoever forgets or unlocks meanwhile either finds the entries or is seen.
        if era is self._era and self._era[0] is _Era.now:
            told.kept = True

    def forget(self, bound: Bound, *, but: Collection[str] = ()) -> None:
        """
        Forget what is remembered of an attempt's limits: something was given back in them.

        Args:
            bound: What the attempt was bound to.
            but: The names of limits that had nothing to give back.
        """
        self._era = (self._era[0], object())
        for slot, name, _ in _slots(bound, 1):
            if name in but:
                continue
            for generation in (self._young, self._old):
                generation.limits.pop(slot, None)

    def _knows(self, shape: Shape) -> bool:
        """Tell whether anything is remembered that could concern these limits."""
        now = _Era.now
        if self._era[0] is not now:
            self._young, self._old = _Generation(), _Generation()
            self._era = (now, object())  # last, as another thread may look meanwhile
        return bool(self._young.limits or self._old.limits) and not shape.counts_refused


def _slots(bound: Bound, cost: int) -> Iterator[tuple[object, str, tuple[object, ...]]]:
    """
    List what can refuse an attempt: the key, the name, and what else must be the same.

    Under several secrets the first one's keys stand for all. The operators' blocks are one.
    """
    shape = bound.shape
    secrets = shape.secrets if len(bound.bindings) > 1 else 1
    for binding in bound.bindings[::secrets]:
        names, member_at = binding.shape.names, 0
        first = len(names.heads) * binding.shape.secrets
        for limit, at in zip(binding.shape.limits, names.logs, strict=True):
            member = b""
            if limit.member_part is not None:
                member = binding.members[member_at : member_at + MEMBER]
                member_at += MEMBER
            counts = (limit, shape.reserved, cost * limit.cost, member)
            yield binding.keys[first + at], limit.name, counts
        if binding.block_keys:
            yield binding.block_keys, _BLOCK, ()


def _whom(shape: Shape, of: Mapping[str, bytes], cost: int) -> tuple[object, ...]:
    return shape, cost, *of.values()


def _name(verdict: Verdict) -> str:
    """Name what it is of; a block has no window, and a limit may be called like one."""
    return verdict.name if verdict.window_ms else _BLOCK


def _lasts(verdict: Verdict) -> bool:
    """Tell whether nothing but time, or what is said to us, ends it."""
    return (
        verdict.refuses and verdict.retry_after_ms > 0 and not verdict.shed and not verdict.recovery
    )


def _aged(verdict: Verdict, by_ms: int) -> Verdict:
    """Say the same so much later; an account that must be recovered is told one wait always."""
    if verdict.recovery or not by_ms or not verdict.reset_after_ms:
        return verdict
    *before, wait_ms, reset_ms, recovery, shed, exempt, delay_ms = verdict
    if wait_ms > 0:
        wait_ms = max(1, wait_ms - by_ms)
    reset_ms = max(0, reset_ms - by_ms)
    return Verdict._make((*before, wait_ms, reset_ms, recovery, shed, exempt, delay_ms))
