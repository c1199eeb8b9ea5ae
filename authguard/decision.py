"""What the store decided about one attempt: plain values, whole numbers, nothing to look up."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cleared", "Decision", "Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What one limit says.

    Attributes:
        name: The limit's name in its policy.
        limit: How many it admits in its window.
        refuses: It would not admit the attempt.
        locked: It is its lock that refuses.
        lock_set: This very reservation filled the log and set the lock.
        remaining: How many more it would admit now, from 0 to ``limit``.
        retry_after_ms: Milliseconds until it would admit the attempt; 0 if it does now.
        reset_after_ms: Milliseconds until it holds nothing any more.
    """

    name: str
    limit: int
    refuses: bool
    locked: bool
    lock_set: bool
    remaining: int
    retry_after_ms: int
    reset_after_ms: int


@dataclass(frozen=True, slots=True)
class Decision:
    """
    The one answer of all limits together: charged in every log, or in none.

    Attributes:
        action: The action asked for.
        allowed: Every limit admits; the attempt has been charged (a peek charges nothing).
        verdicts: One for each limit that applies, in the policy's order.
        now_ms: The clock that decided, integer milliseconds since the epoch.
        degraded: The store was away and the policy's outage rule is ``allow``: nothing was counted.
    """

    action: str
    allowed: bool
    verdicts: tuple[Verdict, ...]
    now_ms: int
    degraded: bool = False

    @property
    def refused_by(self) -> tuple[str, ...]:
        """The names of all limits that refuse."""
        return tuple(verdict.name for verdict in self.verdicts if verdict.refuses)

    @property
    def remaining(self) -> int:
        """How many more attempts all limits together would admit now."""
        return min((verdict.remaining for verdict in self.verdicts), default=0)

    @property
    def retry_after_ms(self) -> int:
        """Milliseconds until the same attempt would be admitted: the longest wait of all."""
        return max((verdict.retry_after_ms for verdict in self.verdicts), default=0)

    @property
    def retry_after(self) -> int:
        """The wait in whole seconds, rounded up: at least 1 if refused, 0 if allowed."""
        return -(-self.retry_after_ms // 1000)

    @property
    def reset_after_ms(self) -> int:
        """Milliseconds until no limit holds anything any more."""
        return max((verdict.reset_after_ms for verdict in self.verdicts), default=0)


@dataclass(frozen=True, slots=True)
class Cleared:
    """
    What a clear freed.

    Attributes:
        entries: Entries taken out of all logs together.
        locks: Locks ended.
    """

    entries: int
    locks: int
