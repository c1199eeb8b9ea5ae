"""
The executable specification: what the Lua must do, written the slow and obvious way.

The tests' oracle. One process, nothing survives it, nothing expires by itself: never a store for
production. It takes the same calls as the Valkey store and must give the same replies.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import chain
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard._core.calls import ScriptCall

__all__ = ["MemoryStore"]

T = TypeVar("T")

_NOBODY: Final = bytes(5)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MINUTE_MS: Final = 60_000

#: The load of a service that has all its capacity, in thousandths.
_WHOLE: Final = 1_000

#: The verbs that know no limits.
_BARE: Final = frozenset({"put", "read", "take", "drop", "set_block", "pardon", "override"})

#: What a limit's plan says of it: it follows the load; its account's overrides count.
_ELASTIC, _HEEDS_OVERRIDES = 1, 2

#: The window up to which the owner's recovery empties a log, full or not.
_SHORT_MS: Final = 3_600_000

#: The bytes at a record's end that a candidate is compared with, and those of a distinct's member.
_PROOF: Final = 32
_MEMBER: Final = 6


class _Entry(NamedTuple):
    at_ms: int
    attempt_id: bytes

    @property
    def client_tag(self) -> bytes:
        return self.attempt_id[:3]


@dataclass(frozen=True, slots=True)
class _Lock:
    ends_ms: int = 0
    level: int = 0
    previous_ends_ms: int = 0
    set_at_ms: int = 0
    set_by: bytes = _NOBODY


class _LogSpec(NamedTuple):
    limit: int
    window_ms: int
    flags: int
    lockouts_ms: list[int]

    @property
    def counts_refused(self) -> bool:
        return self.flags & 1 != 0

    @property
    def forgives(self) -> bool:
        return self.flags & 2 != 0

    @property
    def heeds_pardon(self) -> bool:
        return self.flags & 4 != 0

    def lockout_ms(self, level: int) -> int:
        return self.lockouts_ms[min(max(level, 1), len(self.lockouts_ms)) - 1]


class _SlidingLog:
    """One limit as it stands at one moment."""

    def __init__(self, store: MemoryStore, keys: list[str], spec: _LogSpec, now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.lock_key = keys.pop(0) if spec.lockouts_ms else None
        self.pardon_key = keys.pop(0) if spec.heeds_pardon else None
        pardon_ms = min(now_ms, store.pardons.get(self.pardon_key or "", 0))
        self.spec = spec
        self.now_ms = now_ms
        self.limit = spec.limit
        stored_lock = store.locks.get(self.lock_key or "", _Lock())
        self.lock = self._draw_in(stored_lock)
        stored = store.logs.get(self.key, [])
        self.all = [entry._replace(at_ms=min(entry.at_ms, now_ms)) for entry in stored]
        self.mended = self.all != stored
        if self.mended and self.locked and stored[-1].at_ms >= stored_lock.ends_ms:
            self.lock = replace(self.lock, ends_ms=now_ms)
        if self.locked and self.lock.set_at_ms < pardon_ms:
            self.lock = replace(self.lock, ends_ms=pardon_ms)
        self.lock_mended = (self.lock.ends_ms, self.lock.previous_ends_ms) != (
            stored_lock.ends_ms,
            stored_lock.previous_ends_ms,
        )
        self.log = [
            entry
            for entry in self.all
            if now_ms - entry.at_ms < spec.window_ms
            and (self.locked or entry.at_ms >= self.lock.ends_ms)
            and entry.at_ms >= pardon_ms
        ]
        self.lock_set = False

    def _draw_in(self, lock: _Lock) -> _Lock:
        if lock == _Lock():
            return lock
        latest_ms = self.now_ms + self.spec.lockout_ms(lock.level)
        lock = replace(
            lock,
            ends_ms=min(lock.ends_ms, latest_ms),
            previous_ends_ms=min(lock.previous_ends_ms, self.now_ms),
        )
        quiet_ms = max(self.spec.window_ms, *self.spec.lockouts_ms)
        return replace(lock, level=0) if self.now_ms >= lock.ends_ms + quiet_ms else lock

    @property
    def locked(self) -> bool:
        return self.now_ms < self.lock.ends_ms

    def save_log(self, log: list[_Entry]) -> None:
        self.mend()
        self.store.logs[self.key] = log

    def mend(self) -> None:
        if self.lock_mended:
            self.save_lock()
        if self.pardon_key in self.store.pardons:
            moved_ms = min(self.now_ms, self.store.pardons[self.pardon_key])
            self.store.pardons[self.pardon_key] = moved_ms

    def save_lock(self) -> None:
        self.store.locks[self.lock_key or ""] = self.lock

    def refuses(self, cost: int) -> bool:
        return self.locked or len(self.log) + cost > self.spec.limit

    def charge(self, cost: int, attempt_id: bytes) -> None:
        self.log += [_Entry(self.now_ms, attempt_id)] * cost
        if self.lock_key is not None and len(self.log) >= self.spec.limit:
            level = min(self.lock.level + 1, 255)
            ends_ms = self.now_ms + self.spec.lockout_ms(level)
            self.lock = _Lock(ends_ms, level, self.lock.ends_ms, self.now_ms, attempt_id)
            self.lock_set = True
            self.save_lock()
        self.save_log(self.log)

    def refused(self, cost: int) -> None:
        if self.spec.counts_refused and cost <= self.spec.limit:
            kept = max(self.spec.limit, len(self.log))
            self.log += [_Entry(self.now_ms, _NOBODY)] * cost
            self.log = self.log[-kept:]
            self.save_log(self.log)
        elif self.mended:
            self.save_log(self.all)
        self.mend()

    def verdict(self, cost: int, *, refuses: bool) -> list[int]:
        if self.locked:
            wait_ms = self.lock.ends_ms - self.now_ms
            state = 2 if refuses else 3 if self.lock_set else 0
            return [state, 0, wait_ms if refuses else 0, wait_ms]
        reset_ms = self.log[-1].at_ms + self.spec.window_ms - self.now_ms if self.log else 0
        remaining = max(0, self.spec.limit - len(self.log))
        if not refuses:
            return [0, remaining, 0, reset_ms]
        if cost > self.spec.limit:
            return [1, remaining, -1, reset_ms]
        leaving = self.log[max(1, len(self.log) + cost - self.spec.limit) - 1]
        return [1, remaining, leaving.at_ms + self.spec.window_ms - self.now_ms, reset_ms]

    def settle(self, reserved_at_ms: int, attempt_id: bytes, cost: int) -> list[int]:
        mine = _Entry(min(reserved_at_ms, self.now_ms), attempt_id)
        places = [place for place, entry in enumerate(self.log) if entry == mine][-cost:]
        kept = [
            entry
            for place, entry in enumerate(self.log)
            if place not in places
            and not (
                self.spec.forgives
                and places
                and place < places[0]
                and entry.client_tag == mine.client_tag
            )
        ]
        freed = len(self.log) - len(kept)
        lifted = (
            self.lock.level > 0
            and self.lock.set_at_ms == reserved_at_ms
            and self.lock.set_by == attempt_id
        )
        if lifted:
            ends_ms = self.lock.previous_ends_ms if self.locked else self.lock.ends_ms
            self.lock = _Lock(ends_ms, self.lock.level - 1)
            self.save_lock()
        if freed or lifted:
            self.save_log(kept)
        return [freed, int(lifted)]

    def clear(self) -> list[int]:
        freed, ended = len(self.log), self.locked
        self.save_log([])
        if ended:
            self.lock = _Lock(self.now_ms, self.lock.level)
            self.save_lock()
        return [freed, int(ended)]

    @property
    def window_ms(self) -> int:
        return self.spec.window_ms

    def inspect(self) -> list[int]:
        newest_ms = self.log[-1].at_ms if self.log else 0
        frees_ms = self.log[0].at_ms + self.spec.window_ms - self.now_ms if self.log else 0
        ends_ms = self.lock.ends_ms if self.locked else 0
        if self.locked:
            frees_ms = ends_ms - self.now_ms
        lock = self.lock if self.lock_key is not None else _Lock()
        return [len(self.log), newest_ms, frees_ms, ends_ms, lock.level, lock.set_at_ms]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What a cooldown knows: how many in a row were admitted, and the last two of them."""

    level: int = 0
    last_ms: int = 0
    attempt_id: bytes = _NOBODY
    before_ms: int = 0


class _Cooldown:
    """One cooldown as it stands at one moment."""

    def __init__(
        self, store: MemoryStore, keys: list[str], waits_ms: list[int], now_ms: int
    ) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.waits_ms = waits_ms
        self.limit = 1
        self.window_ms = waits_ms[0]
        self.now_ms = now_ms
        stored = store.cooldowns.get(self.key, _Waiting())
        self.drawn_in = replace(
            stored, last_ms=min(stored.last_ms, now_ms), before_ms=min(stored.before_ms, now_ms)
        )
        quiet = now_ms >= self.drawn_in.last_ms + 10 * waits_ms[-1]
        self.state = _Waiting() if quiet else self.drawn_in

    @property
    def wait_ms(self) -> int:
        if self.state.level == 0:
            return 0
        wait_ms = self.waits_ms[min(self.state.level, len(self.waits_ms)) - 1]
        return max(0, self.state.last_ms + wait_ms - self.now_ms)

    def refuses(self, _: int) -> bool:
        return self.wait_ms > 0

    def charge(self, _: int, attempt_id: bytes) -> None:
        before = self.state
        level = min(before.level + 1, 255)
        self.state = _Waiting(level, self.now_ms, attempt_id, before.last_ms)
        self.store.cooldowns[self.key] = self.state

    def refused(self, _: int) -> None:
        self.store.cooldowns[self.key] = self.drawn_in

    def verdict(self, _: int, *, refuses: bool) -> list[int]:
        wait_ms = self.wait_ms
        return [int(refuses), int(wait_ms == 0), wait_ms if refuses else 0, wait_ms]

    def settle(self, reserved_at_ms: int, attempt_id: bytes, _: int) -> list[int]:
        state = self.state
        own = (min(reserved_at_ms, self.now_ms), attempt_id)
        if state.level == 0 or (state.last_ms, state.attempt_id) != own:
            return [0, 0]
        quiet = self.now_ms >= state.before_ms + 10 * self.waits_ms[-1]
        before = _Waiting() if quiet else _Waiting(state.level - 1, state.before_ms)
        self.store.cooldowns[self.key] = before
        return [1, 0]

    def clear(self) -> list[int]:
        self.store.cooldowns.pop(self.key, None)
        return [int(self.state.level > 0), 0]

    def inspect(self) -> list[int]:
        level = self.state.level
        return [int(self.wait_ms > 0), self.state.last_ms, self.wait_ms, 0, level, 0]


class _WindowSpec(NamedTuple):
    limit: int
    window_ms: int
    kept: int
    calendar: str
    offsets: list[int]


class _FixedWindow:
    """One window's counter as it stands at one moment."""

    def __init__(self, store: MemoryStore, keys: list[str], spec: _WindowSpec, now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.spec = spec
        self.limit = spec.limit
        self.most = max(0, spec.limit - spec.kept)
        self.window_ms = spec.window_ms
        self.now_ms = now_ms
        own_ends_ms = self.end_of(now_ms)
        ends_ms, used = store.windows.get(self.key, (0, 0))
        if now_ms >= ends_ms:
            ends_ms, used = own_ends_ms, 0
        self.ends_ms = min(ends_ms, self.end_of(own_ends_ms))
        self.mended = self.ends_ms != ends_ms
        self.used = used

    def end_of(self, at_ms: int) -> int:
        if not self.spec.calendar:
            return (at_ms // self.spec.window_ms + 1) * self.spec.window_ms
        # The first minute whose local date lies in another day or month: first by hours.
        unit = self.local(at_ms)
        ends_ms = at_ms - at_ms % _MINUTE_MS
        for step_ms in (60 * _MINUTE_MS, _MINUTE_MS):
            while self.local(ends_ms + step_ms) == unit:
                ends_ms += step_ms
        return ends_ms + _MINUTE_MS

    def local(self, at_ms: int) -> tuple[int, ...]:
        changes = list(zip(self.spec.offsets[::2], self.spec.offsets[1::2], strict=True))
        offset_ms = next((o for since, o in reversed(changes) if since <= at_ms), changes[0][1])
        at = _EPOCH + timedelta(milliseconds=at_ms + offset_ms)
        return (at.year, at.month, at.day) if self.spec.calendar == "day" else (at.year, at.month)

    def save(self) -> None:
        self.store.windows[self.key] = (self.ends_ms if self.used else 0, self.used)

    def refuses(self, cost: int) -> bool:
        return self.used + cost > self.most

    def charge(self, cost: int, _: bytes) -> None:
        self.used += cost
        self.save()

    def refused(self, _: int) -> None:
        if self.mended:
            self.save()

    def verdict(self, cost: int, *, refuses: bool) -> list[int]:
        left_ms = self.ends_ms - self.now_ms
        wait_ms = 0 if not refuses else -1 if cost > self.most else left_ms
        remaining = max(0, self.most - self.used)
        return [int(refuses), remaining, wait_ms, left_ms if self.used else 0]

    def settle(self, reserved_at_ms: int, _: bytes, cost: int) -> list[int]:
        if reserved_at_ms > self.now_ms or self.end_of(reserved_at_ms) != self.ends_ms:
            return [0, 0]
        freed = min(cost, self.used)
        self.used -= freed
        self.save()
        return [freed, 0]

    def clear(self) -> list[int]:
        self.store.windows.pop(self.key, None)
        return [self.used, 0]

    def inspect(self) -> list[int]:
        return [self.used, 0, self.ends_ms - self.now_ms if self.used else 0, 0, 0, 0]


class _CounterSpec(NamedTuple):
    limit: int
    window_ms: int


class _Counters:
    """The counters of this window and the one before, as they stand at one moment."""

    def __init__(
        self, store: MemoryStore, keys: list[str], spec: _CounterSpec, now_ms: int
    ) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.spec = spec
        self.limit = spec.limit
        self.window_ms = spec.window_ms
        self.now_ms = now_ms
        self.number = now_ms // spec.window_ms
        number, current, previous = store.counters.get(self.key, (0, 0, 0))
        self.mended = number > self.number
        if number < self.number:
            current, previous = 0, current if number == self.number - 1 else 0
        self.current, self.previous = current, previous

    def save(self) -> None:
        self.store.counters[self.key] = (self.number, self.current, self.previous)

    def estimate_at(self, at_ms: int) -> Fraction:
        number, into_ms = divmod(at_ms, self.spec.window_ms)
        current, previous = self.current, self.previous
        if number > self.number:
            current, previous = 0, current if number == self.number + 1 else 0
        return current + previous * (1 - Fraction(into_ms, self.spec.window_ms))

    @property
    def used(self) -> int:
        return ceil(self.estimate_at(self.now_ms))

    def wait_ms(self, cost: int) -> int:
        # The estimate only falls while nobody takes anything: the first moment is halved for.
        if cost > self.limit:
            return -1
        low_ms, high_ms = 0, 2 * self.spec.window_ms
        while high_ms - low_ms > 1:
            middle_ms = (low_ms + high_ms) // 2
            if self.estimate_at(self.now_ms + middle_ms) + cost > self.limit:
                low_ms = middle_ms
            else:
                high_ms = middle_ms
        return high_ms

    def refuses(self, cost: int) -> bool:
        return self.estimate_at(self.now_ms) + cost > self.limit

    def charge(self, cost: int, _: bytes) -> None:
        self.current += cost
        self.save()

    def refused(self, _: int) -> None:
        if self.mended:
            self.save()

    def verdict(self, cost: int, *, refuses: bool) -> list[int]:
        ends_ms = (self.number + 1) * self.spec.window_ms
        if self.current:
            ends_ms += self.spec.window_ms
        reset_ms = ends_ms - self.now_ms if self.current or self.previous else 0
        wait_ms = self.wait_ms(cost) if refuses else 0
        return [int(refuses), max(0, self.limit - self.used), wait_ms, reset_ms]

    def settle(self, reserved_at_ms: int, _: bytes, cost: int) -> list[int]:
        number = reserved_at_ms // self.spec.window_ms
        freed = 0
        if reserved_at_ms <= self.now_ms and number == self.number:
            freed = min(cost, self.current)
            self.current -= freed
        elif reserved_at_ms <= self.now_ms and number == self.number - 1:
            freed = min(cost, self.previous)
            self.previous -= freed
        if freed:
            self.save()
        return [freed, 0]

    def clear(self) -> list[int]:
        self.store.counters.pop(self.key, None)
        return [self.used, 0]

    def inspect(self) -> list[int]:
        used = self.used
        return [used, 0, self.wait_ms(self.limit - used + 1) if used else 0, 0, 0, 0]


class _BucketSpec(NamedTuple):
    limit: int
    rate: int
    period_ms: int


class _Bucket:
    """A level that falls at a steady rate, as it stands at one moment, in exact fractions."""

    def __init__(self, store: MemoryStore, keys: list[str], spec: _BucketSpec, now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.spec = spec
        self.limit = spec.limit
        self.window_ms = self.drained_in_ms(Fraction(spec.limit))
        self.now_ms = now_ms
        as_of_ms, level, period_ms = store.buckets.get(self.key, (now_ms, Fraction(0), 1))
        if level and period_ms != spec.period_ms:
            # It is reckoned over into parts of the new period, and rounded up.
            part, whole = Fraction(1, spec.period_ms), level // 1
            parts_of_old = (level - whole) * period_ms
            level = whole + part * ceil(float(parts_of_old) / period_ms * spec.period_ms)
        self.mended = as_of_ms > now_ms
        drained = Fraction(spec.rate * max(0, now_ms - as_of_ms), spec.period_ms)
        self.level = max(Fraction(0), level - drained)

    def drained_in_ms(self, places: Fraction) -> int:
        return ceil(places * self.spec.period_ms / self.spec.rate)

    def save(self) -> None:
        self.store.buckets[self.key] = (self.now_ms, self.level, self.spec.period_ms)

    def refuses(self, cost: int) -> bool:
        return self.level + cost > self.limit

    def charge(self, cost: int, _: bytes) -> None:
        self.level += cost
        self.save()

    def refused(self, _: int) -> None:
        if self.mended:
            self.save()

    def verdict(self, cost: int, *, refuses: bool) -> list[int]:
        remaining = max(0, floor(self.limit - self.level))
        wait_ms = 0
        if refuses:
            never = cost > self.limit
            wait_ms = -1 if never else self.drained_in_ms(self.level + cost - self.limit)
        return [int(refuses), remaining, wait_ms, self.drained_in_ms(self.level)]

    def clear(self) -> list[int]:
        self.store.buckets.pop(self.key, None)
        return [ceil(self.level), 0]

    def inspect(self) -> list[int]:
        used = ceil(self.level)
        return [used, 0, self.drained_in_ms(self.level - used + 1) if used else 0, 0, 0, 0]


class _TokenBucket(_Bucket):
    """The level is what is missing of a full bucket."""

    def settle(self, reserved_at_ms: int, _: bytes, cost: int) -> list[int]:
        refilled = Fraction(self.spec.rate * (self.now_ms - reserved_at_ms), self.spec.period_ms)
        if reserved_at_ms > self.now_ms or refilled >= cost or not self.level:
            return [0, 0]
        before = ceil(self.level)
        self.level = max(Fraction(0), self.level - cost + refilled)
        self.save()
        return [before - ceil(self.level), 0]


class _LeakyBucket(_Bucket):
    """The level is the work that is ahead; a turn that was given stays given."""

    delay_ms: int | None = None

    def charge(self, cost: int, attempt_id: bytes) -> None:
        self.delay_ms = self.drained_in_ms(self.level)
        super().charge(cost, attempt_id)

    def verdict(self, cost: int, *, refuses: bool) -> list[int]:
        state, remaining, wait_ms, reset_ms = super().verdict(cost, refuses=refuses)
        if not refuses:
            turn_ms = self.drained_in_ms(self.level)
            wait_ms = turn_ms if self.delay_ms is None else self.delay_ms
        return [state, remaining, wait_ms, reset_ms]

    def settle(self, *_: object) -> list[int]:
        return [0, 0]


class _Value(NamedTuple):
    """A value that a distinct has seen: when last, when before that, and by which attempt."""

    member: bytes
    latest_ms: int
    previous_ms: int | None
    attempt_id: bytes


class _DistinctSpec(NamedTuple):
    limit: int
    window_ms: int
    forgives: int


class _Distinct:
    """The values of one distinct as they stand at one moment."""

    def __init__(
        self,
        store: MemoryStore,
        keys: list[str],
        spec: _DistinctSpec,
        now_ms: int,
        member: bytes,
    ) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.spec = spec
        self.limit = spec.limit
        self.window_ms = spec.window_ms
        self.now_ms = now_ms
        self.member = member
        drawn_in = {
            value.member: value._replace(
                latest_ms=min(value.latest_ms, now_ms),
                previous_ms=None if value.previous_ms is None else min(value.previous_ms, now_ms),
            )
            for value in store.values.get(self.key, {}).values()
        }
        self.values = {
            name: value for name, value in drawn_in.items() if self.counts(value.latest_ms)
        }

    def counts(self, at_ms: int | None) -> bool:
        return at_ms is not None and self.now_ms - at_ms < self.spec.window_ms

    @property
    def times_ms(self) -> list[int]:
        return sorted(value.latest_ms for value in self.values.values())

    def save(self) -> None:
        # A time before that no longer counts is not kept: a clock that steps back revives nothing.
        self.store.values[self.key] = {
            name: value if self.counts(value.previous_ms) else value._replace(previous_ms=None)
            for name, value in self.values.items()
        }

    def refuses(self, _: int) -> bool:
        return self.member not in self.values and len(self.values) >= self.spec.limit

    def charge(self, _: int, attempt_id: bytes) -> None:
        before = self.values.get(self.member)
        previous_ms = None if before is None else before.latest_ms
        self.values[self.member] = _Value(self.member, self.now_ms, previous_ms, attempt_id)
        self.save()

    def refused(self, _: int) -> None:
        if any(
            value.latest_ms > self.now_ms for value in self.store.values.get(self.key, {}).values()
        ):
            self.save()

    def verdict(self, _: int, *, refuses: bool) -> list[int]:
        times_ms, window_ms = self.times_ms, self.spec.window_ms
        reset_ms = times_ms[-1] + window_ms - self.now_ms if times_ms else 0
        remaining = max(0, self.spec.limit - len(times_ms))
        if not refuses:
            return [0, remaining, 0, reset_ms]
        leaving_ms = times_ms[len(times_ms) - self.spec.limit]
        return [1, remaining, leaving_ms + window_ms - self.now_ms, reset_ms]

    def settle(self, reserved_at_ms: int, attempt_id: bytes, _: int) -> list[int]:
        value = self.values.get(self.member)
        made_ms = min(reserved_at_ms, self.now_ms)
        if value is None:
            return [0, 0]
        freed = 0
        if (value.latest_ms, value.attempt_id) == (made_ms, attempt_id):
            del self.values[self.member]
            freed = 1
            before_ms = None if self.spec.forgives else value.previous_ms
            if before_ms is not None and self.counts(before_ms):
                freed = 0
                self.values[self.member] = _Value(self.member, before_ms, None, _NOBODY)
        elif value.previous_ms == made_ms:
            self.values[self.member] = value._replace(previous_ms=None)
        else:
            return [0, 0]
        self.save()
        return [freed, 0]

    def clear(self) -> list[int]:
        self.store.values.pop(self.key, None)
        return [len(self.values), 0]

    def inspect(self) -> list[int]:
        times_ms = self.times_ms
        if not times_ms:
            return [0] * 6
        frees_ms = times_ms[0] + self.spec.window_ms - self.now_ms
        return [len(times_ms), times_ms[-1], frees_ms, 0, 0, 0]


@dataclass(frozen=True, slots=True)
class _Codes:
    """What a conversion knows: the codes under way, how the last ones ended, and its lock."""

    pending: tuple[_Entry, ...] = ()
    finished: tuple[bool, ...] = ()
    newest_ms: int = 0
    ends_ms: int = 0
    set_at_ms: int = 0


class _ConversionSpec(NamedTuple):
    least: int
    of: int
    lockout_ms: int
    life_ms: int
    entered: int


class _Conversion:
    """One conversion breaker as it stands at one moment."""

    def __init__(
        self, store: MemoryStore, keys: list[str], spec: _ConversionSpec, now_ms: int
    ) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.spec = spec
        self.limit = spec.of
        self.window_ms = spec.lockout_ms
        self.quiet_ms = spec.lockout_ms + spec.life_ms
        self.now_ms = now_ms
        self.lock_set = False
        self.stored = store.codes.get(self.key, _Codes())
        self.codes = self._at_this_moment(self.stored)

    def _at_this_moment(self, codes: _Codes) -> _Codes:
        now_ms = self.now_ms
        if now_ms < codes.ends_ms:
            ends_ms = min(codes.ends_ms, now_ms + self.spec.lockout_ms)
            newest_ms, set_at_ms = min(codes.newest_ms, now_ms), min(codes.set_at_ms, now_ms)
            return _Codes(newest_ms=newest_ms, ends_ms=ends_ms, set_at_ms=set_at_ms)
        newest_ms = min(codes.newest_ms, now_ms)
        if now_ms >= newest_ms + self.quiet_ms:
            return _Codes()
        pending = [entry._replace(at_ms=min(entry.at_ms, now_ms)) for entry in codes.pending]
        over = [entry for entry in pending if now_ms - entry.at_ms >= self.spec.life_ms]
        finished = self._last(codes.finished + (False,) * len(over))
        return _Codes(tuple(e for e in pending if e not in over), finished, newest_ms)

    def _last(self, finished: tuple[bool, ...]) -> tuple[bool, ...]:
        return finished[-self.spec.of :]

    @property
    def locked(self) -> bool:
        return self.now_ms < self.codes.ends_ms

    def save(self) -> None:
        self.store.codes[self.key] = self.codes

    def refuses(self, _: int) -> bool:
        return self.locked

    def charge(self, _: int, attempt_id: bytes) -> None:
        codes = replace(self.codes, newest_ms=self.now_ms)
        if len(codes.finished) >= self.spec.of and sum(codes.finished) < self.spec.least:
            ends_ms = self.now_ms + self.spec.lockout_ms
            codes = _Codes(newest_ms=self.now_ms, ends_ms=ends_ms, set_at_ms=self.now_ms)
            self.lock_set = True
        elif len(codes.pending) < self.spec.of:
            entry = _Entry(self.now_ms, attempt_id)
            codes = replace(codes, pending=(*codes.pending, entry))
        self.codes = codes
        self.save()

    def refused(self, _: int) -> None:
        stored, now_ms = self.stored, self.now_ms
        if (
            max(stored.newest_ms, stored.set_at_ms) > now_ms
            or stored.ends_ms > now_ms + self.spec.lockout_ms
        ):
            self.save()

    def verdict(self, _: int, *, refuses: bool) -> list[int]:
        if self.locked:
            wait_ms = self.codes.ends_ms - self.now_ms
            state = 2 if refuses else 3 if self.lock_set else 0
            return [state, 0, wait_ms if refuses else 0, wait_ms]
        holds = self.codes.pending or self.codes.finished
        reset_ms = self.codes.newest_ms + self.quiet_ms - self.now_ms
        return [0, self.spec.of, 0, reset_ms if holds else 0]

    def settle(self, _: int, attempt_id: bytes, __: int) -> list[int]:
        ids = [entry.attempt_id for entry in self.codes.pending]
        if attempt_id not in ids:
            return [0, 0]
        pending = list(self.codes.pending)
        del pending[ids.index(attempt_id)]
        finished = self.codes.finished + (True,) * self.spec.entered
        self.codes = replace(self.codes, pending=tuple(pending), finished=self._last(finished))
        self.save()
        return [1, 0]

    def clear(self) -> list[int]:
        self.store.codes.pop(self.key, None)
        return [len(self.codes.pending) + len(self.codes.finished), int(self.locked)]

    def inspect(self) -> list[int]:
        codes = self.codes
        if self.locked:
            return [0, 0, codes.ends_ms - self.now_ms, codes.ends_ms, 0, codes.set_at_ms]
        holds = codes.pending or codes.finished
        return [len(codes.finished), codes.newest_ms if holds else 0, 0, 0, 0, 0]


class _Blocked(NamedTuple):
    """An operators' block; without an end it stands until it is cleared."""

    set_at_ms: int
    ends_ms: int | None


class _Block:
    """One block as it stands at one moment."""

    limit = 0
    window_ms = 0

    def __init__(self, store: MemoryStore, keys: list[str], now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.now_ms = now_ms
        self.block = self._at_this_moment(store.blocks.get(self.key))

    def _at_this_moment(self, block: _Blocked | None) -> _Blocked | None:
        if block is None:
            return None
        set_at_ms = min(block.set_at_ms, self.now_ms)
        if block.ends_ms is None:
            return _Blocked(set_at_ms, None)
        if self.now_ms >= block.ends_ms:
            return None
        return _Blocked(set_at_ms, block.ends_ms - block.set_at_ms + set_at_ms)

    @property
    def wait_ms(self) -> int:
        if self.block is None:
            return 0
        return 900_000 if self.block.ends_ms is None else self.block.ends_ms - self.now_ms

    def refuses(self, _: int) -> bool:
        return self.block is not None

    def charge(self, cost: int, attempt_id: bytes) -> None:
        pass

    def refused(self, _: int) -> None:
        if self.block is not None and self.block.ends_ms is not None:
            self.store.blocks[self.key] = self.block

    def verdict(self, _: int, *, refuses: bool) -> list[int]:
        return [2 if refuses else 0, 0, self.wait_ms if refuses else 0, self.wait_ms]

    def settle(self, *_: object) -> list[int]:
        return [0, 0]

    def clear(self) -> list[int]:
        self.store.blocks.pop(self.key, None)
        return [0, int(self.block is not None)]

    def inspect(self) -> list[int]:
        if self.block is None:
            return [0] * 6
        ends_ms = -1 if self.block.ends_ms is None else self.block.ends_ms
        return [1, 0, self.wait_ms, ends_ms, 0, self.block.set_at_ms]


_Limit: TypeAlias = (
    _SlidingLog
    | _Cooldown
    | _FixedWindow
    | _Counters
    | _TokenBucket
    | _LeakyBucket
    | _Distinct
    | _Conversion
    | _Block
)


class _Override(NamedTuple):
    """What an operator has put in the place of a limit's numbers; none: the limit is lifted."""

    algorithm: str
    ends_ms: int
    numbers: list[Any]


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
    """

    limit: _Limit
    whole: _Limit
    holds_ms: int
    weight: int
    override_ends_ms: int
    exempt: bool

    def refuses(self, cost: int) -> bool:
        return not self.exempt and self.limit.refuses(cost * self.weight)

    def answer(self, cost: int, *, refuses: bool) -> list[int]:
        cost *= self.weight
        if self.exempt:
            return [5, self.limit.limit, self.limit.limit, 0, 0]
        state, remaining, wait_ms, reset_ms = self.limit.verdict(cost, refuses=refuses)
        if refuses and self.limit is not self.whole:
            shed = not self.whole.refuses(cost)
            whole_ms = 0 if shed else self.whole.verdict(cost, refuses=True)[2]
            if whole_ms >= 0:
                latest_ms = max(self.holds_ms, whole_ms)
                wait_ms = latest_ms if wait_ms < 0 else min(wait_ms, latest_ms)
            state = 4 if shed else state
        if wait_ms < 0 and self.override_ends_ms > self.limit.now_ms:
            wait_ms = self.override_ends_ms - self.limit.now_ms
        return [state, self.limit.limit, remaining, wait_ms, reset_ms]


class MemoryStore:
    """
    The oracle.

    Args:
        clock: Gives milliseconds since the epoch, for calls that pass none.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.logs: dict[str, list[_Entry]] = {}
        self.locks: dict[str, _Lock] = {}
        self.pardons: dict[str, int] = {}
        self.cooldowns: dict[str, _Waiting] = {}
        self.windows: dict[str, tuple[int, int]] = {}
        self.counters: dict[str, tuple[int, int, int]] = {}
        self.buckets: dict[str, tuple[int, Fraction, int]] = {}
        self.overrides: dict[str, dict[str, _Override]] = {}
        self.values: dict[str, dict[bytes, _Value]] = {}
        self.codes: dict[str, _Codes] = {}
        self.blocks: dict[str, _Blocked] = {}
        self.records: dict[str, tuple[int, int, bytes]] = {}
        self._clock = clock
        self._one_at_a_time = threading.Lock()

    def run(self, call: ScriptCall[T]) -> T:
        """Run a call; see :meth:`authguard.stores.base.Store.run`."""
        with self._one_at_a_time:
            return call.read(self.reply(call))

    def close(self) -> None:
        """Hold nothing that needs closing."""

    def reply(self, call: ScriptCall[Any]) -> list[Any]:
        """Give what the call's Lua must give."""
        verb: Callable[..., list[Any]] = getattr(self, f"_{call.script.verb}")
        arguments: tuple[Any, ...] = call.args
        if not arguments:
            return verb(call.keys)
        now_ms = self._clock() if arguments[0] == "" else int(arguments[0])
        if call.script.verb in _BARE:
            return verb(now_ms, call.keys, *arguments[1:])
        *args, plan, members = arguments[1:]
        return verb(now_ms, self._asked(call.keys, json.loads(plan), members, now_ms), *args)

    def _asked(
        self, named: tuple[str, ...], plan: dict[str, Any], members: bytes, now_ms: int
    ) -> list[_Asked]:
        keys = list(named)
        overrides = self._overrides([keys.pop(0) for _ in range(plan["overrides"])])
        share, holds_ms = self._load([keys.pop(0) for _ in range(plan["loads"])], now_ms)
        told_apart = (members[at : at + _MEMBER] for at in range(0, len(members), _MEMBER))
        asked: list[_Asked] = []
        for algorithm, name, weight, flags, own in plan["limits"]:
            member = next(told_apart) if algorithm == "distinct" else b""
            override = overrides.get(name) if flags & _HEEDS_OVERRIDES else None
            if override is not None and (
                override.algorithm != algorithm or now_ms >= override.ends_ms
            ):
                override = None
            numbers = [*override.numbers, *own[len(override.numbers) :]] if override else own
            before = list(keys)
            whole = limit = self._limit(algorithm, keys, numbers, now_ms, member)
            if flags & _ELASTIC and share < _WHOLE:
                scaled = self._scaled(algorithm, numbers, share)
                limit = self._limit(algorithm, before, scaled, now_ms, member)
            asked.append(
                _Asked(
                    limit,
                    whole,
                    holds_ms,
                    weight,
                    override.ends_ms if override else 0,
                    override is not None and not override.numbers,
                )
            )
        return asked

    def _overrides(self, keys: list[str]) -> dict[str, _Override]:
        return next((self.overrides[key] for key in keys if key in self.overrides), {})

    def _load(self, keys: list[str], now_ms: int) -> tuple[int, int]:
        for key in keys:
            ends_ms, made_ms, value = self.records.get(key, (0, 0, b""))
            if made_ms > now_ms:
                ends_ms = now_ms + ends_ms - made_ms
            if now_ms < ends_ms:
                return int.from_bytes(value), ends_ms - now_ms
        return _WHOLE, 0

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
                return _SlidingLog(self, keys, _LogSpec(*own), now_ms)
            case "cooldown":
                return _Cooldown(self, keys, own[0], now_ms)
            case "fixed_window":
                return _FixedWindow(self, keys, _WindowSpec(*own), now_ms)
            case "sliding_window_counter":
                return _Counters(self, keys, _CounterSpec(*own), now_ms)
            case "token_bucket":
                return _TokenBucket(self, keys, _BucketSpec(*own), now_ms)
            case "leaky_bucket":
                return _LeakyBucket(self, keys, _BucketSpec(*own), now_ms)
            case "distinct":
                return _Distinct(self, keys, _DistinctSpec(*own), now_ms, member)
            case "conversion":
                return _Conversion(self, keys, _ConversionSpec(*own), now_ms)
            case _:
                return _Block(self, keys, now_ms)

    def _acquire(self, now_ms: int, asked: list[_Asked], cost: int, attempt_id: bytes) -> list[int]:
        refused = any(each.refuses(cost) for each in asked)
        for each in asked:
            if refused and not each.exempt:
                each.limit.refused(cost * each.weight)
            elif not each.exempt:
                each.limit.charge(cost * each.weight, attempt_id)
        refusals = [refused and each.refuses(cost) for each in asked]
        return self._decision(now_ms, asked, refusals, cost)

    def _peek(self, now_ms: int, asked: list[_Asked], cost: int) -> list[int]:
        return self._decision(now_ms, asked, [each.refuses(cost) for each in asked], cost)

    def _settle(
        self, _: int, asked: list[_Asked], reserved_at_ms: int, attempt_id: bytes, cost: int
    ) -> list[int]:
        freed = (
            [0, 0]
            if each.exempt
            else each.limit.settle(reserved_at_ms, attempt_id, cost * each.weight)
            for each in asked
        )
        return [*chain.from_iterable(freed)]

    def _clear(self, _: int, asked: list[_Asked]) -> list[int]:
        return [n for each in asked for n in each.limit.clear()]

    def _recover(self, _: int, asked: list[_Asked]) -> list[int]:
        lifted = (
            not isinstance(each.limit, _Block)
            and (each.limit.window_ms <= _SHORT_MS or each.refuses(1))
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
                each.override_ends_ms,
                int(each.exempt),
                *each.limit.inspect(),
            )
        ]

    def _override(self, now_ms: int, keys: tuple[str, ...], *told: Any) -> list[int]:
        name, algorithm, life_ms, numbers = told
        live = {other: it for other, it in self._overrides([*keys]).items() if now_ms < it.ends_ms}
        before = live.pop(name, None)
        if life_ms:
            live[name] = _Override(algorithm, now_ms + life_ms, json.loads(numbers))
        for key in keys:
            self.overrides[key] = live
        return [now_ms + life_ms if life_ms else before.ends_ms if before else 0]

    def _set_block(self, now_ms: int, keys: tuple[str, ...], life_ms: int) -> list[int]:
        ends_ms = now_ms + life_ms if life_ms else None
        for key in keys:
            self.blocks[key] = _Blocked(now_ms, ends_ms)
        return [ends_ms or 0]

    def _pardon(self, now_ms: int, keys: tuple[str, ...], _life_ms: int) -> list[int]:
        self.pardons |= dict.fromkeys(keys, now_ms)
        return [now_ms]

    def _put(self, now_ms: int, keys: tuple[str, ...], life_ms: int, value: bytes) -> list[int]:
        self.records[keys[0]] = (now_ms + life_ms, now_ms, value)
        return [1]

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
        answers = (
            each.answer(cost, refuses=refuses)
            for each, refuses in zip(asked, refusals, strict=True)
        )
        return [now_ms, int(not any(refusals)), *chain.from_iterable(answers)]
