"""
The executable specification: what the Lua must do, written the slow and obvious way.

The verbs are here, the algorithms in ``_specification``.

The tests' oracle. One process, nothing survives it, nothing expires by itself: never a store for
production. It takes the same calls as the Valkey store and must give the same replies.
"""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from authguard._core.plan import ELASTIC, HEEDS_OVERRIDES, Spec, decode
from authguard.errors import StoreUnavailable
from authguard.stores._specification.breakers import Block, Blocked, Conversion, ConversionSpec
from authguard.stores._specification.buckets import BucketSpec, LeakyBucket, TokenBucket
from authguard.stores._specification.logs import Distinct, DistinctSpec, LogSpec, SlidingLog
from authguard.stores._specification.waits import Cooldown
from authguard.stores._specification.windows import (
    Counters,
    CounterSpec,
    FixedWindow,
    WindowSpec,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from authguard._core.calls import ScriptCall
    from authguard._core.plan import Plan
    from authguard.stores._specification.breakers import Codes
    from authguard.stores._specification.entries import Entry
    from authguard.stores._specification.logs import Lock, Value
    from authguard.stores._specification.waits import Waiting

__all__ = ["MemoryStore"]

T = TypeVar("T")

NOBODY: Final = bytes(5)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MINUTE_MS: Final = 60_000

#: The load of a service that has all its capacity, in thousandths.
_WHOLE: Final = 1_000

#: The verbs that know no limits.
_BARE: Final = frozenset(
    {"put", "read", "take", "drop", "set_block", "pardon", "override", "load", "mark"}
)

#: What a plan would say of an operators' block that is asked beside its limits.
_BLOCK: Final = Spec("block", "", 1, 0, [])

#: The window up to which the owner's recovery empties a log, full or not.
_SHORT_MS: Final = 3_600_000

#: The bytes at a record's end that a candidate is compared with, and those of a distinct's member.
_PROOF: Final = 32
_MEMBER: Final = 6


_Limit: TypeAlias = (
    SlidingLog
    | Cooldown
    | FixedWindow
    | Counters
    | TokenBucket
    | LeakyBucket
    | Distinct
    | Conversion
    | Block
)


class _Override(NamedTuple):
    """What an operator has put in the place of a limit's numbers; none: the limit is lifted."""

    algorithm: str
    ends_ms: int
    numbers: list[Any]
    set_ms: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """
    One limit of a call: as it stands, and what of the call makes it more or less than it is.

    Attributes:
        limit: The limit with the numbers that apply.
        whole: The same without the load.
        holds_ms: For how long the load still holds.
        weight: Places that one of the cost takes.
        override_ends_ms: When its override ends; 0: there is none.
        exempt: That override lifts it.
        after: Looks at the same once its override has ended; None: it has none.
    """

    limit: _Limit
    whole: _Limit
    holds_ms: int
    weight: int
    override_ends_ms: int
    exempt: bool
    after: Callable[[], _Asked] | None = None

    def refuses(self, cost: int) -> bool:
        return not self.exempt and self.limit.refuses(cost * self.weight)

    def shed(self, cost: int) -> bool:
        return self.limit is not self.whole and not self.whole.refuses(cost * self.weight)

    def answer(self, cost: int, *, refuses: bool) -> list[int]:
        cost *= self.weight
        if self.exempt:
            return [5, self.limit.limit, self.limit.window_ms, self.limit.limit, 0, 0]
        state, remaining, wait_ms, reset_ms = self.limit.verdict(cost, refuses=refuses)
        if refuses and self.limit is not self.whole:
            shed = not self.whole.refuses(cost)
            whole_ms = 0 if shed else self.whole.verdict(cost, refuses=True)[2]
            if whole_ms >= 0:
                latest_ms = max(self.holds_ms, whole_ms)
                wait_ms = latest_ms if wait_ms < 0 else min(wait_ms, latest_ms)
            state = 4 if shed else state
        left_ms = self.override_ends_ms - self.limit.now_ms
        if refuses and self.after is not None and not 0 <= wait_ms < left_ms:
            cost //= self.weight
            after = self.after()
            wait_ms = after.answer(cost, refuses=True)[4] if after.refuses(cost) else 0
            wait_ms = wait_ms if wait_ms < 0 else max(wait_ms, left_ms)
        return [state, self.limit.limit, self.limit.window_ms, remaining, wait_ms, reset_ms]


class MemoryStore:
    """
    The oracle.

    Args:
        clock: Gives milliseconds since the epoch, for calls that pass none.
        spread: Be asked as a cluster is: a call names keys of one hash tag alone.
    """

    def __init__(self, clock: Callable[[], int], *, spread: bool = False) -> None:
        self.spread = spread
        self.logs: dict[str, list[Entry]] = {}
        self.locks: dict[str, Lock] = {}
        self.pardons: dict[str, int] = {}
        self.cooldowns: dict[str, Waiting] = {}
        self.windows: dict[str, tuple[int, int, int]] = {}
        self.counters: dict[str, tuple[int, int, int, int, int]] = {}
        self.buckets: dict[str, tuple[int, Fraction, int, int, int]] = {}
        self.overrides: dict[str, dict[str, _Override]] = {}
        self.values: dict[str, dict[bytes, Value]] = {}
        self.codes: dict[str, Codes] = {}
        self.blocks: dict[str, Blocked] = {}
        self.records: dict[str, tuple[int, int, bytes]] = {}
        self._clock = clock
        self._one_at_a_time = threading.Lock()

    def run(self, call: ScriptCall[T]) -> T:
        """Run a call; see :meth:`authguard.stores.base.Store.run`."""
        if self.spread and len({key.partition("}")[0] for key in call.keys}) > 1:
            raise StoreUnavailable("error reply")  # CROSSSLOT
        with self._one_at_a_time:
            return call.read(self.reply(call))

    def one_deadline(self) -> AbstractContextManager[None]:
        """Never wait."""
        return nullcontext()

    def close(self) -> None:
        """Hold nothing that needs closing."""

    def reply(self, call: ScriptCall[Any]) -> list[Any] | bytes:
        """Give what the call's Lua must give."""
        verb: Callable[..., list[Any] | bytes] = getattr(self, f"_{call.script.verb}")
        arguments: tuple[Any, ...] = call.args
        if not arguments:
            return verb(call.keys)
        now_ms = self._clock() if arguments[0] == "" else int(arguments[0])
        if call.script.verb in _BARE:
            return verb(now_ms, call.keys, *arguments[1:])
        *args, plan, members = arguments[1:]
        return verb(now_ms, self._asked(call.keys, decode(plan), members, now_ms), *args)

    def _asked(
        self, named: tuple[str, ...], plan: Plan, members: bytes, now_ms: int
    ) -> list[_Asked]:
        keys = list(named)
        overrides = self._overrides([keys.pop(0) for _ in range(plan.overrides)], now_ms)
        share, holds_ms, _ = self._share([keys.pop(0) for _ in range(plan.loads)], now_ms)
        if now_ms < plan.ends_ms:
            share, holds_ms = plan.share, plan.ends_ms - now_ms
        told_apart = (members[at : at + _MEMBER] for at in range(0, len(members), _MEMBER))
        asked: list[_Asked] = []
        for spec in (*plan.specs, *[_BLOCK] * plan.blocks):
            algorithm, name, _, flags, _ = spec
            member = next(told_apart) if algorithm == "distinct" else b""
            override = overrides.get(name) if flags & HEEDS_OVERRIDES else None
            if override is not None and override.algorithm != algorithm:
                override = None
            plain = partial(self._stands, [*keys], spec, member, (share, holds_ms), now_ms)
            it = self._stands(keys, spec, member, (share, holds_ms), now_ms, override)
            asked.append(it if override is None else replace(it, after=plain))
        return asked

    def _stands(  # noqa: PLR0917 (a call's own)
        self,
        keys: list[str],
        spec: Spec,
        member: bytes,
        load: tuple[int, int],
        now_ms: int,
        override: _Override | None = None,
    ) -> _Asked:
        algorithm, _, weight, flags, own = spec
        share, holds_ms = load
        numbers = [*override.numbers, *own[len(override.numbers) :]] if override else own
        before = [*keys]
        whole = limit = self._limit(algorithm, keys, numbers, now_ms, member)
        if flags & ELASTIC and share < _WHOLE:
            scaled = self._scaled(algorithm, numbers, share)
            limit = self._limit(algorithm, before, scaled, now_ms, member)
        ends_ms = override.ends_ms if override else 0
        exempt = override is not None and not override.numbers
        return _Asked(limit, whole, holds_ms, weight, ends_ms, exempt)

    def _overrides(self, keys: list[str], now_ms: int) -> dict[str, _Override]:
        found = [item for key in keys for item in self.overrides.get(key, {}).items()]
        live = [(name, it) for name, it in found if it.set_ms <= now_ms < it.ends_ms]
        return dict(sorted(live, key=lambda item: item[1].set_ms))

    def _share(self, keys: list[str], now_ms: int) -> tuple[int, int, int]:
        records = [self.records[key] for key in keys if key in self.records]
        live = [(made, ends, said) for ends, made, said in records if made <= now_ms < ends]
        if not live:
            return _WHOLE, 0, 0
        set_ms, ends_ms, said = max(live, key=lambda record: record[0])
        return int.from_bytes(said), ends_ms - now_ms, set_ms

    @staticmethod
    def _scaled(algorithm: str, numbers: list[Any], share: int) -> list[Any]:
        first, *rest = numbers
        if algorithm.endswith("bucket") and share:
            rest = [rest[0], ceil(Fraction(rest[1] * _WHOLE, share))]
        return [ceil(Fraction(first * share, _WHOLE)), *rest]

    def _limit(  # noqa: PLR0911 (one for each algorithm)
        self, algorithm: str, keys: list[str], own: list[Any], now_ms: int, member: bytes
    ) -> _Limit:
        match algorithm:
            case "sliding_log":
                return SlidingLog(self, keys, LogSpec(*own), now_ms)
            case "cooldown":
                return Cooldown(self, keys, own[0], now_ms)
            case "fixed_window":
                return FixedWindow(self, keys, WindowSpec(*own), now_ms)
            case "sliding_window_counter":
                return Counters(self, keys, CounterSpec(*own), now_ms)
            case "token_bucket":
                return TokenBucket(self, keys, BucketSpec(*own), now_ms)
            case "leaky_bucket":
                return LeakyBucket(self, keys, BucketSpec(*own), now_ms)
            case "distinct":
                return Distinct(self, keys, DistinctSpec(*own), now_ms, member)
            case "conversion":
                return Conversion(self, keys, ConversionSpec(*own), now_ms)
            case _:
                return Block(self, keys, now_ms)

    def _acquire(self, now_ms: int, asked: list[_Asked], cost: int, attempt_id: bytes) -> list[int]:
        refusing = [each for each in asked if each.refuses(cost)]
        refused = bool(refusing)
        by_load = all(each.shed(cost) for each in refusing)
        for each in asked:
            if refused and not each.exempt:
                self._count_refused(each, cost, by_load=by_load)
            elif not each.exempt:
                each.limit.charge(cost * each.weight, attempt_id)
        refusals = [refused and each.refuses(cost) for each in asked]
        return self._decision(now_ms, asked, refusals, cost)

    @staticmethod
    def _count_refused(asked: _Asked, cost: int, *, by_load: bool) -> None:
        if isinstance(asked.limit, SlidingLog):
            asked.limit.refused(cost * asked.weight, by_load=by_load)
        else:
            asked.limit.refused(cost * asked.weight)

    def _peek(self, now_ms: int, asked: list[_Asked], cost: int) -> list[int]:
        return self._decision(now_ms, asked, [each.refuses(cost) for each in asked], cost)

    def _refuse(self, now_ms: int, asked: list[_Asked], cost: int) -> list[int]:
        for each in asked:
            if not each.exempt:
                self._count_refused(each, cost, by_load=False)
        return self._peek(now_ms, asked, cost)

    def _settle(
        self, _: int, asked: list[_Asked], reserved_at_ms: int, attempt_id: bytes, cost: int
    ) -> list[int]:
        freed = (
            each.limit.settle(reserved_at_ms, attempt_id, cost * each.weight) for each in asked
        )
        return [*chain.from_iterable(freed)]

    def _clear(self, _: int, asked: list[_Asked]) -> list[int]:
        return [n for each in asked for n in each.limit.clear()]

    def _recover(self, _: int, asked: list[_Asked]) -> list[int]:
        lifted = (
            not isinstance(each.limit, Block)
            and (
                each.limit.window_ms <= _SHORT_MS
                or (not each.exempt and each.whole.refuses(each.weight))
            )
            for each in asked
        )
        both = zip(asked, lifted, strict=True)
        return [n for each, lift in both for n in (each.limit.clear() if lift else [0, 0])]

    def _inspect(self, _: int, asked: list[_Asked]) -> list[int]:
        return [
            n
            for each in asked
            for n in (
                each.limit.limit,
                each.limit.window_ms,
                each.override_ends_ms,
                int(each.exempt),
                *each.limit.inspect(),
            )
        ]

    def _load(self, now_ms: int, keys: tuple[str, ...]) -> list[int]:
        share, holds_ms, set_ms = self._share([*keys], now_ms)
        return [share, now_ms + holds_ms if holds_ms else 0, set_ms]

    def _override(self, now_ms: int, keys: tuple[str, ...], *told: Any) -> list[int]:
        name, algorithm, life_ms, numbers = told
        live = self._overrides([*keys], now_ms)
        before = live.pop(name, None)
        if life_ms:
            put_in = json.loads(numbers) or []
            live[name] = _Override(algorithm, now_ms + life_ms, put_in, now_ms)
        for key in keys:
            self.overrides[key] = live
        return [now_ms + life_ms if life_ms else before.ends_ms if before else 0]

    def _set_block(self, now_ms: int, keys: tuple[str, ...], life_ms: int) -> list[int]:
        ends_ms = now_ms + life_ms if life_ms else None
        for key in keys:
            self.blocks[key] = Blocked(now_ms, ends_ms)
        return [ends_ms or 0]

    def _pardon(self, now_ms: int, keys: tuple[str, ...], _life_ms: int) -> list[int]:
        self.pardons |= dict.fromkeys(keys, now_ms)
        return [now_ms]

    def _put(self, now_ms: int, keys: tuple[str, ...], life_ms: int, value: bytes) -> list[int]:
        self.records[keys[0]] = (now_ms + life_ms, now_ms, value)
        return [1]

    def _mark(self, now_ms: int, keys: tuple[str, ...], fresh: bytes, life_ms: int) -> bytes:
        mark = self.records.get(keys[0], (0, 0, fresh))[2]
        self.records[keys[0]] = (now_ms + life_ms, now_ms, mark)
        return mark

    def _read(self, now_ms: int, keys: tuple[str, ...]) -> list[bytes]:
        records = [self.records.get(key, (0, 0, b"")) for key in keys]
        return [value if made <= now_ms < ends else b"" for ends, made, value in records]

    def _take(self, now_ms: int, keys: tuple[str, ...], *candidates: bytes) -> list[int]:
        (value,) = self._read(now_ms, keys)
        if not value or value[-_PROOF:] not in candidates:
            return [0]
        del self.records[keys[0]]
        return [1]

    def _drop(self, keys: tuple[str, ...]) -> list[int]:
        return [sum(self.records.pop(key, None) is not None for key in keys)]

    @staticmethod
    def _decision(now_ms: int, asked: list[_Asked], refusals: list[bool], cost: int) -> list[int]:
        blocked = any(isinstance(each.limit, Block) and each.refuses(cost) for each in asked)
        answers = (
            each.answer(cost, refuses=refuses)
            for each, refuses in zip(asked, refusals, strict=True)
            if blocked or not isinstance(each.limit, Block)  # those that admit say nothing
        )
        return [now_ms, int(not any(refusals)), *chain.from_iterable(answers)]
