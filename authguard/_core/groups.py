"""
An attempt's keys, group by group: in one call on a single server, in one a group on a cluster.

Limits fall into groups by what they count: an address's, an account's, a destination's and so on.
Each group's keys share a hash tag, so on a cluster a login has two. There the groups are asked in
a fixed order, the address's first. If a later one refuses, what the earlier ones charged is given
back, and those not yet asked are only looked at, so that the wait that is told is the longest of
all. At no moment is more admitted than a limit allows; for a moment, less may be.

What can't be given back is asked last, and stays: a leaky bucket's place, and the lock of a
conversion that was due. Where a group gives no answer, the places of the earlier ones are given
back if there is time; else they stay, counted as failures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from authguard._core import calls
from authguard._core.attempt import Reservation
from authguard._core.keys import load_key
from authguard.decision import Cleared, Decision
from authguard.errors import StoreUnavailable
from authguard.limits import Conversion, Distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from authguard._core.calls import Load, ScriptCall
    from authguard._core.keys import Binding, Shape
    from authguard._core.steps import Steps
    from authguard.decision import Usage, Verdict
    from authguard.policy import PolicyLimit

__all__ = ["Bound", "Places", "clear", "inspect", "load", "parts", "peek", "read", "recover"]

T = TypeVar("T")


class Bound(NamedTuple):
    """
    A shape's limits, bound to their keys, in as many calls as the store needs.

    Attributes:
        shape: All limits, in the policy's order.
        bindings: One with all keys; on a cluster one for each group, secret by secret.
        load_keys: What tells the load, where it is in none of these groups.
    """

    shape: Shape
    bindings: tuple[Binding, ...]
    load_keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, shape: Shape, pseudonyms: Sequence[Mapping[str, bytes]], *, spread: bool) -> Bound:
        """
        Bind a shape.

        Args:
            shape: The limits.
            pseudonyms: By secret: each subject's pseudonym.
            spread: Whether the store spreads keys over several servers.
        """
        if not spread or not shape.groups:
            return cls(shape, (shape.bind(*pseudonyms),))
        bindings = tuple(group.bind(of) for group in shape.groups for of in pseudonyms)
        loads = tuple(load_key(of["global"]) for of in pseudonyms) if shape.elastic else ()
        return cls(shape, bindings, loads)


@dataclass(slots=True)
class Places:
    """
    A place in every log of an attempt, and the way to give them back.

    Attributes:
        bound: The limits and their keys.
        attempt_id: Five bytes, the client's tag and a nonce; names the entries as its own.
        cost: Places it takes in each log.
        knows_client: Whether the client is known; without one nothing but its own is forgiven.
        state: Where in its life it is; see :mod:`authguard._core.attempt`.
        stuck: Of a refused attempt: how many groups could not be asked to give its place back.
    """

    bound: Bound
    attempt_id: bytes
    cost: int
    knows_client: bool
    state: Literal["reserved", "succeeded", "released"] = field(default="reserved", init=False)
    stuck: int = field(default=0, init=False)
    _load: Load | None = field(default=None, init=False)
    _held: list[tuple[Reservation, int]] = field(default_factory=list, init=False)

    def acquire(self, now_ms: int | None) -> Steps[Decision]:
        """Ask every limit for a place: in all of them, or in none."""
        if self.bound.load_keys:
            self._load = yield from _load_of(self.bound, now_ms)
        decisions: list[Decision] = []
        for binding in self.bound.bindings:
            reservation = Reservation(binding, self.attempt_id, self.cost, self.knows_client)
            try:
                decision = yield reservation.acquire(now_ms, load=self._load)
            except StoreUnavailable:
                yield from self._give_back(now_ms)
                raise
            decisions.append(decision)
            if not decision.allowed:
                yield from self._give_back(now_ms)
                return (yield from self._refused(decisions, now_ms))
            self._hold(reservation, decision)
        return _joined(self.bound, decisions)

    def leave(
        self, into: Literal["succeeded", "released"], now_ms: int | None
    ) -> Steps[Cleared | None]:
        """
        Give the places back; ``None`` if the attempt has left its reserved state already.

        Raises:
            StoreUnavailable: A group gave no clear answer: its entry stays. All have been asked.
        """
        if self.state != "reserved":
            return None
        self.state = into
        cleared: list[Cleared] = []
        failed: StoreUnavailable | None = None
        for reservation, reserved_at_ms in self._held:
            call = reservation.leave(
                into, reserved_at_ms=reserved_at_ms, now_ms=now_ms, load=self._load
            )
            try:
                cleared.append((yield call))
            except StoreUnavailable as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return _sum(self.bound, cleared)

    def _hold(self, reservation: Reservation, decision: Decision) -> None:
        """Keep what must be given back; where an exemption counted nothing, there is nothing."""
        if decision.exempt:
            reservation.binding = reservation.binding.without(decision.exempt)
        if reservation.binding.shape.limits:  # else it was asked for blocks alone
            self._held.append((reservation, decision.now_ms))

    def _give_back(self, now_ms: int | None) -> Steps[None]:
        """Take back what the groups so far have charged."""
        for reservation, at_ms in self._held:
            call = reservation.leave(
                "released", reserved_at_ms=at_ms, now_ms=now_ms, load=self._load
            )
            try:
                yield call
            except StoreUnavailable:
                self.stuck += 1
        self._held.clear()

    def _refused(self, decisions: list[Decision], now_ms: int | None) -> Steps[Decision]:
        """
        Make the decision of an attempt that the last one refuses.

        Groups that have not been asked are looked at, and those with ``count_refused`` count it,
        on either side. The refusal stands whether they answer or not.
        """
        *earlier, refusing = decisions
        counting = not refusing.shed  # what the load alone refuses counts nowhere
        told: list[Decision] = []
        for at, binding in enumerate(self.bound.bindings):
            counts = counting and binding.shape.counts_refused
            if at < len(earlier) and not counts:
                told.append(_given_back(earlier[at], binding, self.cost))
            elif at == len(earlier):
                told.append(refusing)
            else:
                ask = calls.refuse if counts else calls.peek
                call = ask(binding, cost=self.cost, now_ms=now_ms, load=self._load)
                try:
                    told.append((yield call))
                except StoreUnavailable:
                    if at > len(earlier):
                        break
                    told.append(_given_back(earlier[at], binding, self.cost))
        return _joined(self.bound, told)


def peek(bound: Bound, *, cost: int, now_ms: int | None) -> Steps[Decision]:
    """Ask what an attempt would be told; writes nothing."""
    load = yield from _load_of(bound, now_ms)
    decisions = yield from _each(
        calls.peek(binding, cost=cost, now_ms=now_ms, load=load) for binding in bound.bindings
    )
    return _joined(bound, decisions)


def clear(bound: Bound, *, now_ms: int | None) -> Steps[Cleared]:
    """Empty the logs and end their locks."""
    cleared = yield from _each(calls.clear(each, now_ms=now_ms) for each in bound.bindings)
    return _sum(bound, cleared)


def recover(bound: Bound, *, now_ms: int | None) -> Steps[Cleared]:
    """Do the same for limits of an hour or less, and for those that would refuse now."""
    load = yield from _load_of(bound, now_ms)
    cleared = yield from _each(
        calls.recover(binding, now_ms=now_ms, load=load) for binding in bound.bindings
    )
    return _sum(bound, cleared)


def inspect(bound: Bound, *, now_ms: int | None) -> Steps[tuple[Usage, ...]]:
    """Look at every limit and block for an operator; writes nothing."""
    load = yield from _load_of(bound, now_ms)
    found: dict[PolicyLimit, list[Usage]] = {
        limit: [] for limit in bound.shape.limits + bound.shape.blocks
    }
    for binding in bound.bindings:
        usages = yield calls.inspect(binding, now_ms=now_ms, load=load)
        limits = binding.shape.limits + binding.shape.blocks
        for limit, usage in zip(limits, usages, strict=True):
            found[limit].append(usage)
    return tuple(calls.join_usages(usages) for usages in found.values())


def load(keys: tuple[str, ...], *, now_ms: int | None, spread: bool) -> Steps[Load]:
    """Ask what elastic limits follow now: of what stands under each secret, the newest."""
    newest: Load | None = None
    for part in parts(keys, spread=spread):
        said: Load = yield calls.load(part, now_ms=now_ms)
        if newest is None or said.set_at_ms > newest.set_at_ms:
            newest = said
    if newest is None:
        raise ValueError("keys: must not be empty")
    return newest


def read(
    keys: tuple[str, ...], *, now_ms: int | None, spread: bool
) -> Steps[tuple[bytes | None, ...]]:
    """Read one-time secrets; None for each that is not there, or over."""
    values: list[bytes | None] = []
    for part in parts(keys, spread=spread):
        values += yield calls.read(part, now_ms=now_ms)
    return tuple(values)


def parts(keys: tuple[str, ...], *, spread: bool) -> list[tuple[str, ...]]:
    """Name keys of several secrets in one call, or each in its own."""
    return [(key,) for key in keys] if spread else [keys]


def _each(asked: Iterable[ScriptCall[T]]) -> Steps[list[T]]:
    """Ask one after another; give the answers in turn."""
    answers: list[T] = []
    for call in asked:
        answer: T = yield call
        answers.append(answer)
    return answers


def _load_of(bound: Bound, now_ms: int | None) -> Steps[Load | None]:
    if not bound.load_keys:
        return None
    return (yield from load(bound.load_keys, now_ms=now_ms, spread=True))


def _given_back(decision: Decision, binding: Binding, cost: int) -> Decision:
    """Tell what a group that had admitted says once its places are given back."""
    own = len(binding.shape.limits)
    verdicts = [
        verdict._replace(
            remaining=min(verdict.limit, verdict.remaining + _places(limit, cost)),
            # The lock of a conversion was due, and stays.
            lock_set=verdict.lock_set and isinstance(limit.algorithm, Conversion),
            recovery=False,
            delay_ms=0,
        )
        for limit, verdict in zip(binding.shape.limits, decision.verdicts[:own], strict=True)
    ]
    told = (*verdicts, *decision.verdicts[own:])
    return Decision(decision.action, decision.allowed, told, decision.now_ms)


def _places(limit: PolicyLimit, cost: int) -> int:
    """Give what an attempt took; whether a value that is told apart was new is not known here."""
    return 0 if isinstance(limit.algorithm, Distinct) else cost * limit.cost


def _joined(bound: Bound, decisions: list[Decision]) -> Decision:
    """Make one decision of those of the groups, in the policy's order."""
    if len(bound.bindings) == 1:
        return decisions[0]
    found: dict[PolicyLimit, list[Verdict]] = {limit: [] for limit in bound.shape.limits}
    blocking: dict[Verdict, None] = {}
    for binding, decision in zip(bound.bindings, decisions, strict=False):
        own = len(binding.shape.limits)
        for limit, verdict in zip(binding.shape.limits, decision.verdicts[:own], strict=True):
            found[limit].append(verdict)
        blocking.update(dict.fromkeys(decision.verdicts[own:]))
    decided = (calls.strictest(verdicts) for verdicts in found.values() if verdicts)
    return Decision(
        bound.shape.action,
        all(decision.allowed for decision in decisions),
        (*decided, *blocking),
        max(decision.now_ms for decision in decisions),
    )


def _sum(bound: Bound, cleared: list[Cleared]) -> Cleared:
    """Add what groups gave back; what stands under several secrets is one entry, and one lock."""
    if not cleared:
        return _NOTHING
    secrets = bound.shape.secrets if len(bound.bindings) > 1 else 1
    each = [cleared[at::secrets] for at in range(secrets)]
    return Cleared(
        entries=max(sum(it.entries for it in of) for of in each),
        locks=max(sum(it.locks for it in of) for of in each),
    )


_NOTHING: Final = Cleared(0, 0)
