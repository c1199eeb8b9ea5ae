"""A level that falls at a steady rate, in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from authguard.stores.memory import MemoryStore

__all__ = ["Bucket", "BucketSpec", "LeakyBucket", "TokenBucket"]


class BucketSpec(NamedTuple):
    limit: int
    rate: int
    period_ms: int


class Bucket:
    """A level that falls at a steady rate, as it stands at one moment, in exact fractions."""

    def __init__(self, store: MemoryStore, keys: list[str], spec: BucketSpec, now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.spec = spec
        self.limit = spec.limit
        self.window_ms = self.drained_in_ms(Fraction(spec.limit))
        self.now_ms = now_ms
        nothing = (now_ms, Fraction(0), spec.period_ms, spec.rate, 0)
        as_of_ms, level, period_ms, rate, since_ms = store.buckets.get(self.key, nothing)
        same = (period_ms, rate) == (spec.period_ms, spec.rate)
        self.since_ms = min(now_ms, since_ms) if same else now_ms - 1
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
        if not self.level and self.now_ms >= self.since_ms + self.window_ms:
            self.store.buckets.pop(self.key, None)
            return
        numbers = (self.spec.period_ms, self.spec.rate)
        self.store.buckets[self.key] = (self.now_ms, self.level, *numbers, self.since_ms)

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
        freed = ceil(self.level)
        if freed:
            self.level, self.since_ms = Fraction(0), self.now_ms
            self.save()
        return [freed, 0]

    def inspect(self) -> list[int]:
        used = ceil(self.level)
        return [used, 0, self.drained_in_ms(self.level - used + 1) if used else 0, 0, 0, 0]


class TokenBucket(Bucket):
    """The level is what is missing of a full bucket."""

    def settle(self, reserved_at_ms: int, _: bytes, cost: int) -> list[int]:
        refilled = Fraction(self.spec.rate * (self.now_ms - reserved_at_ms), self.spec.period_ms)
        known = not self.since_ms or reserved_at_ms > self.since_ms
        if reserved_at_ms > self.now_ms or not known or refilled >= cost or not self.level:
            return [0, 0]
        before = ceil(self.level)
        self.level = max(Fraction(0), self.level - cost + refilled)
        self.save()
        return [before - ceil(self.level), 0]


class LeakyBucket(Bucket):
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
