"""Counters of the clock's own windows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from authguard.stores.memory import MemoryStore

__all__ = ["CounterSpec", "Counters", "FixedWindow", "WindowSpec"]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE_MS: Final = 60_000

#: A calendar's days; without one it is 0, and months are 2.
_DAY: Final = 1


class WindowSpec(NamedTuple):
    limit: int
    window_ms: int
    kept: int
    calendar: int
    offsets: list[int]


class FixedWindow:
    """One window's counter as it stands at one moment."""

    def __init__(self, store: MemoryStore, keys: list[str], spec: WindowSpec, now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.spec = spec
        self.limit = spec.limit
        self.most = max(0, spec.limit - spec.kept)
        self.window_ms = spec.window_ms
        self.now_ms = now_ms
        own_ends_ms = self.end_of(now_ms)
        ends_ms, used, cleared_ms = store.windows.get(self.key, (0, 0, 0))
        if now_ms >= ends_ms:
            ends_ms, used, cleared_ms = own_ends_ms, 0, 0
        self.ends_ms = min(ends_ms, self.end_of(own_ends_ms))
        self.mended = self.ends_ms != ends_ms
        self.used = used
        self.cleared_ms = min(now_ms, cleared_ms)

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
        return (at.year, at.month, at.day) if self.spec.calendar == _DAY else (at.year, at.month)

    def save(self) -> None:
        if self.used or self.cleared_ms:
            self.store.windows[self.key] = (self.ends_ms, self.used, self.cleared_ms)
        else:
            self.store.windows.pop(self.key, None)

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
        if not self.cleared_ms < reserved_at_ms <= self.now_ms:
            return [0, 0]
        if self.end_of(reserved_at_ms) != self.ends_ms:
            return [0, 0]
        freed = min(cost, self.used)
        self.used -= freed
        self.save()
        return [freed, 0]

    def clear(self) -> list[int]:
        freed = self.used
        if freed:
            self.used, self.cleared_ms = 0, self.now_ms
            self.save()
        return [freed, 0]

    def inspect(self) -> list[int]:
        return [self.used, 0, self.ends_ms - self.now_ms if self.used else 0, 0, 0, 0]


class CounterSpec(NamedTuple):
    limit: int
    window_ms: int


class Counters:
    """The counters of this window and the one before, as they stand at one moment."""

    def __init__(self, store: MemoryStore, keys: list[str], spec: CounterSpec, now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.spec = spec
        self.limit = spec.limit
        self.window_ms = spec.window_ms
        self.now_ms = now_ms
        self.number = now_ms // spec.window_ms
        self.mended = False
        self.current, self.previous, self.cleared_ms = 0, 0, 0
        nothing = (-2, 1, 0, 0, 0)
        number, window_ms, current, previous, cleared_ms = store.counters.get(self.key, nothing)
        if now_ms >= (number + 2) * window_ms:
            return
        self.cleared_ms = min(now_ms, cleared_ms)
        ends_ms, own_ends_ms = (number + 1) * window_ms, (self.number + 1) * spec.window_ms
        if ends_ms > own_ends_ms or window_ms != spec.window_ms:
            self.current, self.mended = current + previous, True
        elif number == self.number:
            self.current, self.previous = current, previous
        else:
            self.previous = current

    def save(self) -> None:
        window_ms = self.spec.window_ms
        self.store.counters[self.key] = (
            *(self.number, window_ms),
            *(self.current, self.previous, self.cleared_ms),
        )

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
        counts = self.cleared_ms < reserved_at_ms <= self.now_ms
        if counts and number == self.number:
            freed = min(cost, self.current)
            self.current -= freed
        elif counts and number == self.number - 1:
            freed = min(cost, self.previous)
            self.previous -= freed
        if freed:
            self.save()
        return [freed, 0]

    def clear(self) -> list[int]:
        freed = self.used
        if self.current or self.previous:
            self.current, self.previous, self.cleared_ms = 0, 0, self.now_ms
            self.save()
        return [freed, 0]

    def inspect(self) -> list[int]:
        used = self.used
        return [used, 0, self.wait_ms(self.limit - used + 1) if used else 0, 0, 0, 0]
