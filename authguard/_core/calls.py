"""
What is asked of the store, as values: script, keys, arguments, and how to read the reply.

A reply that is anything but the well-formed answer of its script is
:class:`~authguard.errors.StoreUnavailable`: nobody is admitted on a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from authguard._core.scripts import script
from authguard.decision import Cleared, Decision, Verdict
from authguard.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard._core.keys import Binding, Shape
    from authguard._core.scripts import Script
    from authguard.policy import PolicyLimit

__all__ = ["ScriptCall", "acquire", "clear", "peek", "settle"]

T = TypeVar("T")

#: No clock shows this or more (the year 6429); the Lua keeps times in six bytes.
LATEST_MS: Final = 2**47

_ADMITS, _FULL, _LOCKED, _LOCK_SET = range(4)


@dataclass(frozen=True, slots=True)
class ScriptCall(Generic[T]):
    """
    One script call.

    Attributes:
        script: What runs.
        keys: Its KEYS.
        args: Its ARGV.
        read: Turns the store's reply into the answer, or raises ``StoreUnavailable``.
    """

    script: Script
    keys: tuple[str, ...]
    args: tuple[bytes | str | int, ...]
    read: Callable[[object], T]


def clock_argument(now_ms: int | None) -> str:
    """Say which clock counts: the store's own, or one that a test or a replay passes."""
    return "" if now_ms is None else str(now_ms)


def acquire(
    binding: Binding, *, cost: int, attempt_id: bytes, now_ms: int | None
) -> ScriptCall[Decision]:
    """Reserve a place in every log, or in none."""
    shape = binding.shape
    return ScriptCall(
        script("acquire", shape.algorithms),
        binding.keys,
        (clock_argument(now_ms), cost, attempt_id, shape.specs),
        lambda reply: _read_decision(reply, shape),
    )


def peek(binding: Binding, *, cost: int, now_ms: int | None) -> ScriptCall[Decision]:
    """Ask what acquire would say; writes nothing."""
    shape = binding.shape
    return ScriptCall(
        script("peek", shape.algorithms),
        binding.keys,
        (clock_argument(now_ms), cost, shape.specs),
        lambda reply: _read_decision(reply, shape),
    )


def settle(
    binding: Binding,
    *,
    reserved_at_ms: int,
    attempt_id: bytes,
    cost: int,
    forgive: bool,
    now_ms: int | None,
) -> ScriptCall[Cleared]:
    """Take a reservation back; with ``forgive``, its client's earlier failures too."""
    shape = binding.shape
    specs = shape.specs if forgive else shape.specs_unforgiving
    return ScriptCall(
        script("settle", shape.algorithms),
        binding.keys,
        (clock_argument(now_ms), reserved_at_ms, attempt_id, cost, specs),
        lambda reply: _read_cleared(reply, shape),
    )


def clear(binding: Binding, *, now_ms: int | None) -> ScriptCall[Cleared]:
    """Empty the logs and end their locks."""
    shape = binding.shape
    return ScriptCall(
        script("clear", shape.algorithms),
        binding.keys,
        (clock_argument(now_ms), shape.specs),
        lambda reply: _read_cleared(reply, shape),
    )


def _integers(reply: object, length: int) -> list[int]:
    if (
        not isinstance(reply, list)
        or len(reply) != length
        or any(type(item) is not int for item in reply)
    ):
        raise StoreUnavailable("malformed reply")
    return reply


def _read_decision(reply: object, shape: Shape) -> Decision:
    limits = shape.limits * shape.secrets
    integers = _integers(reply, 2 + 4 * len(limits))
    now_ms, admitted = integers[:2]
    verdicts = [
        _read_verdict(limit, integers[2 + 4 * at : 6 + 4 * at]) for at, limit in enumerate(limits)
    ]
    if (
        not 0 <= now_ms < LATEST_MS
        or admitted not in (0, 1)
        or bool(admitted) is any(verdict.refuses for verdict in verdicts)
    ):
        raise StoreUnavailable("malformed reply")
    if shape.secrets > 1:
        places = len(shape.limits)
        verdicts = [_strictest(verdicts[at::places]) for at in range(places)]
    return Decision(shape.action, bool(admitted), tuple(verdicts), now_ms)


def _read_verdict(limit: PolicyLimit, integers: list[int]) -> Verdict:
    state, remaining, wait_ms, reset_ms = integers
    refuses = state in (_FULL, _LOCKED)
    if (
        not _ADMITS <= state <= _LOCK_SET
        or not 0 <= remaining <= limit.algorithm.limit
        or (wait_ms < 1 if refuses else wait_ms != 0)
        or reset_ms < 0
    ):
        raise StoreUnavailable("malformed reply")
    return Verdict(
        name=limit.name,
        limit=limit.algorithm.limit,
        refuses=refuses,
        locked=state == _LOCKED,
        lock_set=state == _LOCK_SET,
        remaining=remaining,
        retry_after_ms=wait_ms,
        reset_after_ms=reset_ms,
    )


def _strictest(verdicts: list[Verdict]) -> Verdict:
    """Join what one limit says under each secret: any of its logs can refuse."""
    setting_lock = [verdict for verdict in verdicts if verdict.lock_set]
    return replace(
        verdicts[0],
        refuses=any(verdict.refuses for verdict in verdicts),
        locked=any(verdict.locked for verdict in verdicts),
        lock_set=bool(setting_lock),
        remaining=min(verdict.remaining for verdict in verdicts),
        retry_after_ms=max(verdict.retry_after_ms for verdict in verdicts),
        # Where a lock was set: its end.
        reset_after_ms=max(verdict.reset_after_ms for verdict in setting_lock or verdicts),
    )


def _read_cleared(reply: object, shape: Shape) -> Cleared:
    step = 2 * len(shape.limits)
    integers = _integers(reply, step * shape.secrets)
    if any(number < 0 for number in integers):
        raise StoreUnavailable("malformed reply")
    # What stands under several secrets is one entry, and one lock.
    each = range(0, step, 2)
    return Cleared(
        entries=sum(max(integers[at::step]) for at in each),
        locks=sum(max(integers[at + 1 :: step]) for at in each),
    )
