"""
Slots: so many holders at a time, so many waiting, so long; everybody else is refused.

No clock is read here: a wait is one timed acquire of a lock, counted by the operating system. A
test that freezes ``time.monotonic`` (freezegun) therefore can't make a wait last for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

from authguard.checks import is_whole
from authguard.errors import ConfigurationError, HashingUnavailable

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Slots"]


class Slots:
    """
    Lets at most ``count`` threads into its ``with`` block; ``queue`` more wait in line.

    A slot given back goes to the thread that has waited longest, so nobody overtakes. While a
    slot is free nobody waits.

    Args:
        count: Holders at a time; None is the number of CPUs this process may use.
        queue: Threads that may wait.
        wait_s: Longest wait, in seconds.

    Raises:
        ConfigurationError: A value is none (AG033 to AG035).
    """

    def __init__(self, count: int | None, queue: int, wait_s: float) -> None:
        if count is not None and not is_whole(count, 1):
            raise ConfigurationError(
                "AG033",
                "passwords.slots",
                "must be a whole number, at least 1",
                "take the number of cores divided by the number of worker processes",
            )
        if not is_whole(queue, 0):
            raise ConfigurationError(
                "AG034", "passwords.queue", "must be a whole number, at least 0", "take 16"
            )
        # `not 0 < x` also catches NaN. Longer waits than TIMEOUT_MAX overflow in the lock.
        is_number = isinstance(wait_s, int | float) and not isinstance(wait_s, bool)
        if not is_number or not 0 < wait_s <= threading.TIMEOUT_MAX:
            raise ConfigurationError(
                "AG035",
                "passwords.wait_s",
                "must be a finite number of seconds above 0",
                "take 1.0",
            )
        self.count = _cpus() if count is None else count
        self._queue = queue
        self._wait_s = float(wait_s)
        self._start_afresh()
        _alive.add(self)

    def _start_afresh(self) -> None:
        self._mutex = threading.Lock()
        self._free = self.count
        self._waiting: deque[_Turn] = deque()  # longest wait first

    def __enter__(self) -> None:
        turn = _Turn()
        try:
            self._line_up(turn)
            self._wait_for(turn)
        except BaseException:  # also what a signal handler raised: leave no place, no slot behind
            self._withdraw(turn)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._mutex:
            self._pass_on()

    def _line_up(self, turn: _Turn) -> None:
        with self._mutex:
            if self._free:
                self._free -= 1
                turn.has_slot = True
                turn.came.release()
            elif len(self._waiting) < self._queue:
                self._waiting.append(turn)
            else:
                raise HashingUnavailable("hash queue full")

    def _wait_for(self, turn: _Turn) -> None:
        turn.came.acquire(timeout=self._wait_s)
        with self._mutex:  # the slot may have come in the very moment the wait ended
            if not turn.has_slot:
                raise HashingUnavailable("no hash slot in time")

    def _withdraw(self, turn: _Turn) -> None:
        with self._mutex:
            if turn.has_slot:
                self._pass_on()
            elif turn in self._waiting:
                self._waiting.remove(turn)

    def _pass_on(self) -> None:
        """Give one slot to whoever waited longest, or free it; the caller holds the mutex."""
        if self._waiting:
            turn = self._waiting[0]
            turn.has_slot = True
            self._waiting.popleft()
            turn.came.release()
        else:
            self._free += 1


class _Turn:
    """One caller's turn: a lock, released when the slot comes, and whether it came."""

    __slots__ = ("came", "has_slot")

    def __init__(self) -> None:
        self.came = threading.Lock()
        self.came.acquire()
        self.has_slot = False


def _cpus() -> int:
    """Count the CPUs this process may use, as Python 3.13's ``os.process_cpu_count`` does."""
    if hasattr(os, "process_cpu_count"):
        return int(os.process_cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_alive: weakref.WeakSet[Slots] = weakref.WeakSet()


def _start_all_afresh() -> None:
    # The threads that held or awaited slots don't exist in a forked child and can't give back.
    for slots in _alive:
        slots._start_afresh()  # noqa: SLF001 - the same module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all_afresh)
