"""
The executable specification: what the Lua must do, written the slow and obvious way.

The tests' oracle. One process, nothing survives it, nothing expires by itself: never a store for
production. It takes the same calls as the Valkey store and must give the same replies.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard._core.calls import ScriptCall

__all__ = ["MemoryStore"]

T = TypeVar("T")

_NOBODY: Final = bytes(5)


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


class _Spec(NamedTuple):
    algorithm: str
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

    def lockout_ms(self, level: int) -> int:
        return self.lockouts_ms[min(max(level, 1), len(self.lockouts_ms)) - 1]


class _SlidingLog:
    """One limit as it stands at one moment."""

    def __init__(self, store: MemoryStore, keys: list[str], spec: _Spec, now_ms: int) -> None:
        self.store = store
        self.key = keys.pop(0)
        self.lock_key = keys.pop(0) if spec.lockouts_ms else None
        self.spec = spec
        self.now_ms = now_ms
        stored_lock = store.locks.get(self.lock_key or "", _Lock())
        self.lock = self._draw_in(stored_lock)
        stored = store.logs.get(self.key, [])
        self.all = [entry._replace(at_ms=min(entry.at_ms, now_ms)) for entry in stored]
        self.mended = self.all != stored
        if self.mended and self.locked and stored[-1].at_ms >= stored_lock.ends_ms:
            self.lock = replace(self.lock, ends_ms=now_ms)
        self.lock_mended = (self.lock.ends_ms, self.lock.previous_ends_ms) != (
            stored_lock.ends_ms,
            stored_lock.previous_ends_ms,
        )
        self.log = [
            entry
            for entry in self.all
            if now_ms - entry.at_ms < spec.window_ms
            and (self.locked or entry.at_ms >= self.lock.ends_ms)
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
        if self.lock_mended:
            self.save_lock()
        self.store.logs[self.key] = log

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
        if self.lock_mended:
            self.save_lock()

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


class MemoryStore:
    """
    The oracle.

    Args:
        clock: Gives milliseconds since the epoch, for calls that pass none.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.logs: dict[str, list[_Entry]] = {}
        self.locks: dict[str, _Lock] = {}
        self._clock = clock
        self._one_at_a_time = threading.Lock()

    def run(self, call: ScriptCall[T]) -> T:
        """Run a call; see :meth:`authguard.stores.base.Store.run`."""
        with self._one_at_a_time:
            return call.read(self.reply(call))

    def close(self) -> None:
        """Hold nothing that needs closing."""

    def reply(self, call: ScriptCall[Any]) -> list[int]:
        """Give the integers that the call's Lua must give."""
        arguments: tuple[Any, ...] = call.args
        clock, *args, specs = arguments
        now_ms = self._clock() if clock == "" else int(clock)
        keys = list(call.keys)
        limits = [_SlidingLog(self, keys, _Spec(*spec), now_ms) for spec in json.loads(specs)]
        verb: Callable[..., list[int]] = getattr(self, f"_{call.script.verb}")
        return verb(now_ms, limits, *args)

    def _acquire(
        self, now_ms: int, limits: list[_SlidingLog], cost: int, attempt_id: bytes
    ) -> list[int]:
        if any(limit.refuses(cost) for limit in limits):
            for limit in limits:
                limit.refused(cost)
            return self._decision(now_ms, limits, [limit.refuses(cost) for limit in limits], cost)
        for limit in limits:
            limit.charge(cost, attempt_id)
        return self._decision(now_ms, limits, [False] * len(limits), cost)

    def _peek(self, now_ms: int, limits: list[_SlidingLog], cost: int) -> list[int]:
        return self._decision(now_ms, limits, [limit.refuses(cost) for limit in limits], cost)

    def _settle(
        self, _: int, limits: list[_SlidingLog], reserved_at_ms: int, attempt_id: bytes, cost: int
    ) -> list[int]:
        return [n for limit in limits for n in limit.settle(reserved_at_ms, attempt_id, cost)]

    def _clear(self, _: int, limits: list[_SlidingLog]) -> list[int]:
        return [n for limit in limits for n in limit.clear()]

    @staticmethod
    def _decision(
        now_ms: int, limits: list[_SlidingLog], refusals: list[bool], cost: int
    ) -> list[int]:
        verdicts = (
            limit.verdict(cost, refuses=refuses)
            for limit, refuses in zip(limits, refusals, strict=True)
        )
        return [now_ms, int(not any(refusals)), *chain.from_iterable(verdicts)]
