"""What a guard and its limiters share: the store, the clock, the pseudonyms. Private."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from authguard._core import groups
from authguard._core.calls import LATEST_MS
from authguard._core.groups import Bound
from authguard._core.keys import can_override
from authguard.checks import shown
from authguard.errors import TooDear
from authguard.limits.rates import LARGEST_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from authguard._core.groups import Places
    from authguard._core.keys import Shape
    from authguard._core.refusals import Refusals
    from authguard._core.steps import Steps
    from authguard.decision import Decision
    from authguard.identity import Pseudonyms
    from authguard.stores.base import AsyncStore, Store

__all__ = ["Engine", "check_cost", "check_reachable"]


@dataclass(frozen=True, slots=True)
class Engine:
    """
    The parts that calls are made of.

    Attributes:
        store: Runs the calls.
        pseudonyms: Names what is counted, by secret, newest first.
        clock: Gives milliseconds since the epoch; ``None``: the store's own clock counts.
        refusals: What is known to be refused.
    """

    store: Store | AsyncStore
    pseudonyms: tuple[Pseudonyms, ...]
    clock: Callable[[], int] | None
    refusals: Refusals

    @property
    def spread(self) -> bool:
        """Whether the store spreads keys over several servers: one call for each group of keys."""
        return self.store.spread

    def bind(self, shape: Shape, pseudonyms: Sequence[Mapping[str, bytes]]) -> Bound:
        """Bind limits to their keys, in as many calls as the store needs."""
        return Bound.of(shape, pseudonyms, spread=self.store.spread)

    def reserve(self, places: Places, now_ms: int | None) -> Steps[Decision]:
        """
        Ask every limit for a place, and remember a refusal.

        Args:
            places: The places to reserve.
            now_ms: A passed clock (:meth:`now_ms`): time jumps there, so nothing is remembered.
        """
        if now_ms is not None:
            return (yield from places.acquire(now_ms))
        asked = self.refusals.begin()
        try:
            decision = yield from places.acquire(None)
        except BaseException:  # cancelled, too
            if self.spread:  # groups that had admitted gave it back
                self.refusals.forget(places.bound)
            raise
        if not decision.allowed:
            self.refusals.keep(places.bound, places.cost, decision, asked)
            if self.spread:
                self.refusals.forget(places.bound, decision)
        return decision

    def known_refusal(
        self, shape: Shape, of: Mapping[str, bytes], cost: int, now_ms: int | None
    ) -> Decision | None:
        """
        Give the decision on an attempt that was refused just so a moment ago; None: ask.

        Args:
            shape: Its limits.
            of: The pseudonyms of what it names, under the first secret.
            cost: What it costs.
            now_ms: A passed clock: nothing is known of its time.
        """
        return None if now_ms is not None else self.refusals.repeat(shape, of, cost)

    def parts(self, keys: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Name keys of several secrets in one call, or each in its own."""
        return groups.parts(keys, spread=self.store.spread)

    def now_ms(self, passed: int | None) -> int | None:
        """
        Choose the clock: what a replay passes, else the guard's, else the store's own (``None``).

        Raises:
            ValueError: If it gives anything but whole milliseconds since the epoch.
        """
        now_ms = self.clock() if passed is None and self.clock is not None else passed
        if now_ms is not None and (type(now_ms) is not int or not 0 <= now_ms < LATEST_MS):
            raise ValueError("now_ms: must be whole milliseconds since the epoch")
        return now_ms


def check_cost(cost: object, shape: Shape) -> None:
    """
    Check a cost before anything is sent.

    What an override could admit is left to the store: see :func:`check_reachable`.

    Raises:
        ValueError: If it is no whole number from 1; :class:`~authguard.errors.TooDear`, if it is
            more than a limit could ever admit.
    """
    if type(cost) is not int or cost < 1:
        raise ValueError(f"cost: must be a whole number of at least 1, not {shown(cost)}")
    if cost > LARGEST_COUNT:
        raise TooDear(cost, LARGEST_COUNT)
    if cost <= shape.most:
        return
    for limit in shape.limits:
        most = limit.algorithm.largest_cost(reserved=shape.reserved)
        if most is not None and cost * limit.cost > most:
            if shape.overrides and can_override(limit):
                continue
            raise TooDear(cost * limit.cost, most, limit.name)


def check_reachable(cost: int, decision: Decision, shape: Shape) -> None:
    """
    Check a refusal for a limit that no wait would make admit.

    Raises:
        TooDear: If there is one.
    """
    limits = {limit.name: limit for limit in shape.limits}
    for verdict in decision.verdicts:
        if verdict.retry_after_ms < 0:
            limit = limits[verdict.name]
            most = limit.algorithm.largest_cost(reserved=shape.reserved) or verdict.limit
            raise TooDear(cost * limit.cost, most, verdict.name)
