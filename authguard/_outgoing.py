"""
Work for after the answer: sent in the background, so that an answer never waits for a provider.

Neither its time nor its failure may tell who has an account. A job runs once: nothing is sent again
here, since what failed late may have gone out. Order is not promised.

No wait depends on a clock that freezegun stops.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final

from authguard.checks import is_whole, shown
from authguard.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Outgoing"]

#: How long the end of a process waits for what is still to be sent, in seconds.
_AT_EXIT_S: Final = 5.0

_log = logging.getLogger("authguard")


class Outgoing:
    """
    Runs jobs in the background: ``threads`` at a time, ``queue`` more waiting.

    Threads come with the work and go with it; an idle object holds none. A forked child starts
    with an empty queue: what was put before the fork is the parent's to send. The end of the
    process waits at most five seconds for what is left, however the provider hangs.

    Args:
        threads: Jobs at a time.
        queue: Jobs that may wait.
        delay_s: Every job begins so many seconds after it was put, at the earliest: when the
            answer of the request that put it is out, and can't be slowed down by it.

    Raises:
        ConfigurationError: AG050, if a number is none.
    """

    def __init__(self, threads: int = 4, queue: int = 1000, *, delay_s: float = 0.0) -> None:
        for name, value in (("threads", threads), ("queue", queue)):
            if not is_whole(value, 1):
                raise ConfigurationError(
                    "AG050",
                    f"outgoing.{name}",
                    f"{shown(value)} is no whole number of at least 1",
                    "take 4 threads and a queue of 1000",
                )
        self._threads = threads
        self._queue = queue
        self._delay_s = delay_s
        self._start_afresh()
        _alive.add(self)

    def _start_afresh(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._unfinished: set[_Job] = set()
        self._running = 0
        self._failed = 0

    @property
    def failed(self) -> int:
        """How many jobs have raised in this process."""
        return self._failed

    @property
    def unfinished(self) -> int:
        """How many jobs wait or run."""
        return len(self._unfinished)

    def put(self, job: Callable[[], None], *, spare: bool = False) -> bool:
        """
        Run the job soon, in the background; False, at once, if no place is free.

        Args:
            job: What to do. What it raises is logged by its type alone, since the text may hold
                an address.
            spare: It may be left out: it takes no place in the second half of the queue.
        """
        entry = _Job(job, _monotonic_s() + self._delay_s)
        with self._mutex:
            if len(self._waiting) >= (self._queue // 2 if spare else self._queue):
                return False
            self._waiting.append(entry)
            self._unfinished.add(entry)
            if self._running < self._threads and not self._one_more() and not self._running:
                self._waiting.remove(entry)
                self._unfinished.remove(entry)
                return False
        return True

    def _one_more(self) -> bool:
        """Start a thread, if the system has one to give; the caller holds the mutex."""
        try:
            threading.Thread(target=self._work, name="authguard-outgoing", daemon=True).start()
        except RuntimeError:
            return False
        self._running += 1
        return True

    def drain(self, timeout_s: float) -> bool:
        """
        Wait until all that was put so far is done, well or not; False if time ran out.

        Args:
            timeout_s: Longest wait, in seconds.
        """
        ends_s = _monotonic_s() + timeout_s
        with self._mutex:
            jobs = list(self._unfinished)
        return all(job.done.wait(max(0.0, ends_s - _monotonic_s())) for job in jobs)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            time.sleep(max(0.0, job.begins_s - _monotonic_s()))
            failure = _failure(job.run)
            with self._mutex:
                self._failed += failure is not None
                self._unfinished.discard(job)
            if failure is not None:
                _log.error("a message could not be sent: %s", failure)
            job.done.set()

    def _next(self) -> _Job | None:
        with self._mutex:
            if self._waiting:
                return self._waiting.popleft()
            # In the same breath as the look at the queue: a job put later finds one thread fewer.
            self._running -= 1
            return None


class _Job:
    """One job, when it may begin, and whether it is done."""

    __slots__ = ("begins_s", "done", "run")

    def __init__(self, run: Callable[[], None], begins_s: float) -> None:
        self.run = run
        self.begins_s = begins_s
        self.done = threading.Event()


def _failure(job: Callable[[], None]) -> str | None:
    """Run a job; name the type of what it raised, and keep nothing else of it."""
    try:
        job()
    except BaseException as error:  # noqa: BLE001 - a job that exits must not take the thread along
        return type(error).__name__
    return None


def _monotonic_s() -> float:
    # Not time.monotonic: freezegun stops that one.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


_alive: weakref.WeakSet[Outgoing] = weakref.WeakSet()


def _start_all_afresh() -> None:
    # The parent's threads don't exist in a forked child, and the parent sends what they had to.
    for outgoing in _alive:
        outgoing._start_afresh()  # noqa: SLF001 - the same module


def _finish_all() -> None:
    ends_s = _monotonic_s() + _AT_EXIT_S
    for outgoing in list(_alive):
        outgoing.drain(ends_s - _monotonic_s())
    lost = sum(outgoing.unfinished for outgoing in _alive)
    if lost:
        _log.error("the process ended before all was sent; messages lost: %d", lost)


# Not concurrent.futures: its threads are joined at exit for as long as a provider hangs.
atexit.register(_finish_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all_afresh)
