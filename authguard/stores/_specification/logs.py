"""The exact ones: the sliding log with its lockout, and the log of different values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from authguard.stores._specification.entries import NOBODY, Entry

if TYPE_CHECKING:
    from authguard.stores.memory import MemoryStore

__all__ = ["Distinct", "DistinctSpec", "Lock", "LogSpec", "SlidingLog", "Value"]


@dataclass(frozen=True, slots=True)
class Lock:
    ends_ms: int = 0
    level: int = 0
    previous_ends_ms: int = 0
    set_at_ms: int = 0
    set_by: bytes = NOBODY


class LogSpec(NamedTuple):
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


class SlidingLog:
    """One limit as it stands at one moment."""

    def __init__(self, store: MemoryStore, keys: list[str], spec: LogSpec, now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.lock_key = keys.pop(0) if spec.lockouts_ms else None
        self.pardon_key = keys.pop(0) if spec.heeds_pardon else None
        pardon_ms = min(now_ms, store.pardons.get(self.pardon_key or "", 0))
        self.spec = spec
        self.now_ms = now_ms
        self.limit = spec.limit
        stored_lock = store.locks.get(self.lock_key or "", Lock())
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

    def _draw_in(self, lock: Lock) -> Lock:
        if lock == Lock():
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

    def save_log(self, log: list[Entry]) -> None:
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
        self.log += [Entry(self.now_ms, attempt_id)] * cost
        if self.lock_key is not None and len(self.log) >= self.spec.limit:
            level = min(self.lock.level + 1, 255)
            ends_ms = self.now_ms + self.spec.lockout_ms(level)
            self.lock = Lock(ends_ms, level, self.lock.ends_ms, self.now_ms, attempt_id)
            self.lock_set = True
            self.save_lock()
        self.save_log(self.log)

    def refused(self, cost: int, *, by_load: bool) -> None:
        if self.spec.counts_refused and not by_load and cost <= self.spec.limit:
            kept = max(self.spec.limit, len(self.log))
            self.log += [Entry(self.now_ms, NOBODY)] * cost
            self.log = self.log[-kept:]
            self.save_log(self.log)
        elif self.mended:
            self.save_log(self.all)
        self.mend()

    def verdict(self, cost: int, *, refuses: bool) -> list[int]:
        if self.locked:
            left_ms = self.lock.ends_ms - self.now_ms
            wait_ms = -1 if cost > self.spec.limit else left_ms
            state = 2 if refuses else 3 if self.lock_set else 0
            return [state, 0, wait_ms if refuses else 0, left_ms]
        reset_ms = self.log[-1].at_ms + self.spec.window_ms - self.now_ms if self.log else 0
        remaining = max(0, self.spec.limit - len(self.log))
        if not refuses:
            return [0, remaining, 0, reset_ms]
        if cost > self.spec.limit:
            return [1, remaining, -1, reset_ms]
        leaving = self.log[max(1, len(self.log) + cost - self.spec.limit) - 1]
        return [1, remaining, leaving.at_ms + self.spec.window_ms - self.now_ms, reset_ms]

    def settle(self, reserved_at_ms: int, attempt_id: bytes, cost: int) -> list[int]:
        mine = Entry(min(reserved_at_ms, self.now_ms), attempt_id)
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
            self.lock = Lock(ends_ms, self.lock.level - 1)
            self.save_lock()
        if freed or lifted:
            self.save_log(kept)
        return [freed, int(lifted)]

    def clear(self) -> list[int]:
        freed, ended = len(self.log), self.locked
        self.save_log([])
        if ended:
            self.lock = Lock(self.now_ms, self.lock.level)
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
        lock = self.lock if self.lock_key is not None else Lock()
        return [len(self.log), newest_ms, frees_ms, ends_ms, lock.level, lock.set_at_ms]


class Value(NamedTuple):
    """A value that a distinct has seen: when last and before that, by whom last, how many stand."""

    member: bytes
    latest_ms: int
    previous_ms: int | None
    attempt_id: bytes
    stand: int


#: As many attempts on one value as are counted.
MOST: Final = 255


class DistinctSpec(NamedTuple):
    limit: int
    window_ms: int
    forgives: int


class Distinct:
    """The values of one distinct as they stand at one moment."""

    def __init__(
        self,
        store: MemoryStore,
        keys: list[str],
        spec: DistinctSpec,
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
        stand = 1 if before is None else min(MOST, before.stand + 1)
        self.values[self.member] = Value(self.member, self.now_ms, previous_ms, attempt_id, stand)
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
        if value is None or not self.counts(made_ms) or made_ms > value.latest_ms:
            return [0, 0]
        stand = value.stand - (value.stand < MOST)
        is_latest = (value.latest_ms, value.attempt_id) == (made_ms, attempt_id)
        freed = not stand or (is_latest and bool(self.spec.forgives))
        if freed:
            del self.values[self.member]
        elif is_latest:
            back_ms = value.latest_ms
            if value.previous_ms is not None and self.counts(value.previous_ms):
                back_ms = value.previous_ms
            self.values[self.member] = Value(self.member, back_ms, None, NOBODY, stand)
        else:
            previous_ms = None if value.previous_ms == made_ms else value.previous_ms
            self.values[self.member] = value._replace(previous_ms=previous_ms, stand=stand)
        self.save()
        return [int(freed), 0]

    def clear(self) -> list[int]:
        self.store.values.pop(self.key, None)
        return [len(self.values), 0]

    def inspect(self) -> list[int]:
        times_ms = self.times_ms
        if not times_ms:
            return [0] * 6
        frees_ms = times_ms[0] + self.spec.window_ms - self.now_ms
        return [len(times_ms), times_ms[-1], frees_ms, 0, 0, 0]
