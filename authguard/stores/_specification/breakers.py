"""The breaker on messages with codes, and what operators block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from authguard.stores._specification.entries import Entry

if TYPE_CHECKING:
    from authguard.stores.memory import MemoryStore

__all__ = ["Block", "Blocked", "Codes", "Conversion", "ConversionSpec"]


@dataclass(frozen=True, slots=True)
class Codes:
    """What a conversion knows: the codes under way, how the last ones ended, and its lock."""

    pending: tuple[Entry, ...] = ()
    finished: tuple[bool, ...] = ()
    newest_ms: int = 0
    ends_ms: int = 0
    set_at_ms: int = 0


class ConversionSpec(NamedTuple):
    least: int
    of: int
    lockout_ms: int
    life_ms: int
    entered: int


class Conversion:
    """One conversion breaker as it stands at one moment."""

    def __init__(
        self, store: MemoryStore, keys: list[str], spec: ConversionSpec, now_ms: int
    ) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.spec = spec
        self.limit = spec.of
        self.window_ms = spec.lockout_ms
        self.quiet_ms = spec.lockout_ms + spec.life_ms
        self.now_ms = now_ms
        self.lock_set = False
        self.stored = store.codes.get(self.key, Codes())
        self.codes = self._at_this_moment(self.stored)

    def _at_this_moment(self, codes: Codes) -> Codes:
        now_ms = self.now_ms
        if now_ms < codes.ends_ms:
            ends_ms = min(codes.ends_ms, now_ms + self.spec.lockout_ms)
            newest_ms, set_at_ms = min(codes.newest_ms, now_ms), min(codes.set_at_ms, now_ms)
            return Codes(newest_ms=newest_ms, ends_ms=ends_ms, set_at_ms=set_at_ms)
        newest_ms = min(codes.newest_ms, now_ms)
        if now_ms >= newest_ms + self.quiet_ms:
            return Codes()
        pending = [entry._replace(at_ms=min(entry.at_ms, now_ms)) for entry in codes.pending]
        over = [entry for entry in pending if now_ms - entry.at_ms >= self.spec.life_ms]
        finished = self._last(codes.finished + (False,) * len(over))
        return Codes(tuple(e for e in pending if e not in over), finished, newest_ms)

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
            codes = Codes(newest_ms=self.now_ms, ends_ms=ends_ms, set_at_ms=self.now_ms)
            self.lock_set = True
        elif len(codes.pending) < self.spec.of:
            entry = Entry(self.now_ms, attempt_id)
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


class Blocked(NamedTuple):
    """An operators' block; without an end it stands until it is cleared."""

    set_at_ms: int
    ends_ms: int | None


class Block:
    """One block as it stands at one moment."""

    limit = 0
    window_ms = 0

    def __init__(self, store: MemoryStore, keys: list[str], now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.now_ms = now_ms
        self.block = self._at_this_moment(store.blocks.get(self.key))

    def _at_this_moment(self, block: Blocked | None) -> Blocked | None:
        if block is None:
            return None
        set_at_ms = min(block.set_at_ms, self.now_ms)
        if block.ends_ms is None:
            return Blocked(set_at_ms, None)
        if self.now_ms >= block.ends_ms:
            return None
        return Blocked(set_at_ms, block.ends_ms - block.set_at_ms + set_at_ms)

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
