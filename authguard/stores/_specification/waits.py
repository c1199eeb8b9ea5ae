"""The waits between one and the next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from authguard.stores._specification.entries import NOBODY

if TYPE_CHECKING:
    from authguard.stores.memory import MemoryStore

__all__ = ["Cooldown", "Waiting"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a cooldown knows: how many in a row were admitted, and the last two of them."""

    level: int = 0
    last_ms: int = 0
    attempt_id: bytes = NOBODY
    before_ms: int = 0


class Cooldown:
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
        stored = store.cooldowns.get(self.key, Waiting())
        self.drawn_in = replace(
            stored, last_ms=min(stored.last_ms, now_ms), before_ms=min(stored.before_ms, now_ms)
        )
        quiet = now_ms >= self.drawn_in.last_ms + 10 * waits_ms[-1]
        self.state = Waiting() if quiet else self.drawn_in

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
        self.state = Waiting(level, self.now_ms, attempt_id, before.last_ms)
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
        before = Waiting() if quiet else Waiting(state.level - 1, state.before_ms)
        self.store.cooldowns[self.key] = before
        return [1, 0]

    def clear(self) -> list[int]:
        self.store.cooldowns.pop(self.key, None)
        return [int(self.state.level > 0), 0]

    def inspect(self) -> list[int]:
        level = self.state.level
        return [int(self.wait_ms > 0), self.state.last_ms, self.wait_ms, 0, level, 0]
