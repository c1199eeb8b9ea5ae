"""What the store decided about one attempt: plain values, whole numbers, nothing to look up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Never

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DENYLIST", "RECOVERY_WAIT_MS", "Cleared", "Decision", "Usage", "Verdict"]

#: The name of the verdict of the denylist.
DENYLIST: Final = "denylist"

#: An account that must be recovered has no honest wait; a refusal shows this one, the longest
#: short window, so that the state is nobody's oracle.
RECOVERY_WAIT_MS: Final = 900_000

_set = object.__setattr__


class Verdict(NamedTuple):
    """
    What one limit says.

    Attributes:
        name: The limit's name in its policy.
        limit: How many it admits: its own number, its tier's or an override's, scaled by the load.
        window_ms: For how long a place stays taken, with the same numbers.
        refuses: It would not admit the attempt.
        locked: It is its lock that refuses.
        lock_set: This very reservation filled the log and set the lock.
        remaining: Places that are left in it, from 0 to ``limit``.
        retry_after_ms: Milliseconds until it would admit the attempt; 0 if it does now.
        reset_after_ms: Milliseconds until it holds nothing any more.
        recovery: The account must be recovered: this limit says so, and it is full.
        shed: It refuses by the load alone: as a whole it would admit.
        exempt: An operator has exempted the account from it; nothing was counted in it.
        delay_ms: Milliseconds to wait before acting on the attempt, so that work leaves at a steady
            rate; 0 but for a leaky bucket that admits.
    """

    name: str
    limit: int
    window_ms: int
    refuses: bool
    locked: bool
    lock_set: bool
    remaining: int
    retry_after_ms: int
    reset_after_ms: int
    recovery: bool = False
    shed: bool = False
    exempt: bool = False
    delay_ms: int = 0


class Decision:
    """
    The one answer of all limits together: charged in every log, or in none.

    Attributes:
        action: The action asked for.
        allowed: Every limit admits; the attempt has been charged (a peek charges nothing).
        now_ms: The clock that decided, integer milliseconds since the epoch.
        degraded: The store was away and the policy's outage rule is ``allow``: nothing was counted.

    Args:
        action: See above.
        allowed: See above.
        verdicts: One for each limit that applies, in the policy's order. Or a function that gives
            them when somebody asks, where each simply admits: few ask then.
        now_ms: See above.
        degraded: See above.
    """

    __slots__ = ("_verdicts", "action", "allowed", "degraded", "now_ms")

    action: str
    allowed: bool
    now_ms: int
    degraded: bool
    _verdicts: tuple[Verdict, ...] | Callable[[], tuple[Verdict, ...]]

    def __init__(
        self,
        action: str,
        allowed: bool,
        verdicts: tuple[Verdict, ...] | Callable[[], tuple[Verdict, ...]],
        now_ms: int,
        degraded: bool = False,
    ) -> None:
        _set(self, "action", action)
        _set(self, "allowed", allowed)
        _set(self, "_verdicts", verdicts)
        _set(self, "now_ms", now_ms)
        _set(self, "degraded", degraded)

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"{name}: a decision can't be changed")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError(f"{name}: a decision can't be changed")

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One for each limit that applies, in the policy's order."""
        verdicts = self._verdicts
        if not isinstance(verdicts, tuple):
            verdicts = verdicts()
            _set(self, "_verdicts", verdicts)
        return verdicts

    @property
    def exempt(self) -> frozenset[str]:
        """The names of the limits that counted nothing, since the account is exempt from them."""
        if not isinstance(self._verdicts, tuple):
            return frozenset()  # nothing was said but that each admits
        return frozenset(verdict.name for verdict in self._verdicts if verdict.exempt)

    def _told(self) -> tuple[object, ...]:
        return self.action, self.allowed, self.verdicts, self.now_ms, self.degraded

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self._told() == other._told()

    def __hash__(self) -> int:
        return hash(self._told())

    def __repr__(self) -> str:
        return (
            f"Decision(action={self.action!r}, allowed={self.allowed}, verdicts={self.verdicts},"
            f" now_ms={self.now_ms}, degraded={self.degraded})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return Decision, self._told()

    @property
    def refused_by(self) -> tuple[str, ...]:
        """The names of all limits that refuse."""
        return tuple(verdict.name for verdict in self.verdicts if verdict.refuses)

    @property
    def denylisted(self) -> bool:
        """Whether it is the denylist that refuses; the store was not asked."""
        return self.refused_by == (DENYLIST,)

    @property
    def remaining(self) -> int:
        """Places that are left in every limit; of those that count nothing, none is asked."""
        counting = (verdict.remaining for verdict in self.verdicts if not verdict.exempt)
        return min(counting, default=0)

    @property
    def shed(self) -> bool:
        """Whether the load alone refuses: as a whole, every limit that does would admit."""
        refusing = [verdict.shed for verdict in self.verdicts if verdict.refuses]
        return bool(refusing) and all(refusing)

    @property
    def delay_ms(self) -> int:
        """Milliseconds to wait before acting, so that work leaves at a leaky bucket's rate."""
        return max((verdict.delay_ms for verdict in self.verdicts), default=0)

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


class Cleared(NamedTuple):
    """
    What a clear freed.

    Attributes:
        entries: Entries taken out of all logs together.
        locks: Locks ended.
    """

    entries: int
    locks: int


class Usage(NamedTuple):
    """
    How one limit stands, for an operator.

    Attributes:
        name: The limit's name in its policy; ``block`` for the operators' block.
        by: What it counts by.
        algorithm: How it counts.
        limit: How many it admits, as a verdict says.
        window_ms: How long a place stays taken, with the same numbers.
        used: Places taken; of a ``conversion``, the finished codes it would judge by.
        newest_ms: When its newest entry was made, milliseconds since the epoch; None if it holds
            none, or keeps no times.
        frees_after_ms: Milliseconds until one more place is free; 0 if none is taken.
        locked_until_ms: When its lock or block ends; None if nothing locks it, or for ever.
        endless: A block without an end stands.
        level: How far its lockouts or waits have climbed.
        lock_set_at_ms: When the last lock or block was set; None if there is none.
        override_until_ms: When the override of it for the account ends; None if there is none.
        exempt: That override exempts the account from it.
    """

    name: str
    by: tuple[str, ...]
    algorithm: str
    limit: int
    window_ms: int
    used: int
    newest_ms: int | None
    frees_after_ms: int
    locked_until_ms: int | None
    endless: bool
    level: int
    lock_set_at_ms: int | None
    override_until_ms: int | None = None
    exempt: bool = False
