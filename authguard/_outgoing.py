"""
Work for after the answer: sent in the background, so that an answer never waits for a provider.

Neither its time nor its failure may tell who has an account. A job runs once: nothing is sent again
here, since what failed late may have gone out. Order is not promised. A job may ask for its rest to
be done later: whatever waits for its time keeps no thread from the others.

No wait depends on a clock that freezegun stops.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from authguard.checks import is_whole, shown
from authguard.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Later", "Outgoing", "Timer"]

#: How long the end of a process waits for what is still to be sent, in seconds.
_AT_EXIT_S: Final = 5.0

_log = logging.getLogger("authguard")


@dataclass(frozen=True, slots=True)
class Later:
    """
    What a job returns to have its rest done later; it waits, and counts as unfinished, until then.

    Attributes:
        begins_s: When, by :meth:`Outgoing.now_s`.
        run: The rest.
    """

    begins_s: float
    run: Callable[[], object]


class Timer:
    """The clock that jobs begin by."""

    def now_s(self) -> float:
        """Read it, in seconds."""
        # Not time.monotonic: freezegun stops that one.
        return time.clock_gettime(time.CLOCK_MONOTONIC)

    def wait(self, changed: threading.Condition, longest_s: float) -> None:
        """Wait so many seconds, or until something changes."""
        changed.wait(min(longest_s, threading.TIMEOUT_MAX))


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
        timer: Gives the time, for tests.

    Raises:
        ConfigurationError: AG050, if a number is none.
    """

    def __init__(
        self,
        threads: int = 4,
        queue: int = 1000,
        *,
        delay_s: float = 0.0,
        timer: Timer | None = None,
    ) -> None:
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
        self._timer = timer or Timer()
        self._start_afresh()
        _alive.add(self)

    def _start_afresh(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Job] = []  # a heap, by when they begin
        self._places = 0  # that are taken: by those waiting that have not begun
        self._put = 0
        self._unfinished: set[_Job] = set()
        self._running = 0
        self._busy = 0  # threads that do a job
        self._watched = False  # a thread waits for the first one's time
        self._failed = 0

    @property
    def failed(self) -> int:
        """How many jobs have raised in this process."""
        return self._failed

    @property
    def unfinished(self) -> int:
        """How many jobs wait or run."""
        return len(self._unfinished)

    def now_s(self) -> float:
        """Read the clock that jobs begin by, in seconds."""
        return self._timer.now_s()

    def put(self, job: Callable[[], object], *, spare: bool = False) -> bool:
        """
        Run the job soon, in the background; False, at once, if no place is free.

        Args:
            job: What to do. What it raises is logged by its type alone, since the text may hold
                an address. If it returns a :class:`Later`, that is done at its time; meanwhile it
                takes no place in the queue, and can't be refused one.
            spare: It may be left out: it takes no place in the second half of the queue.
        """
        with self._changed:
            # A job that a free thread is about to take doesn't wait for one.
            places = (self._queue // 2 if spare else self._queue) + self._threads - self._busy
            if self._places >= places:
                return False
            self._put += 1
            entry = _Job(job, self._timer.now_s() + self._delay_s, self._put)
            heappush(self._waiting, entry)
            self._unfinished.add(entry)
            self._places += 1
            if not self._look_after(entry):
                self._waiting.remove(entry)
                heapify(self._waiting)
                self._unfinished.remove(entry)
                self._places -= 1
                return False
        return True

    def _look_after(self, entry: _Job) -> bool:
        """See to it that a thread takes the new entry; the caller holds the mutex."""
        if self._watched:
            if self._waiting[0] is entry:  # it begins before what is waited for
                self._changed.notify()
            return True
        if self._running < self._threads and not self._one_more():
            return self._running > 0
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
        with self._changed:
            jobs = list(self._unfinished)
        return all(job.done.wait(max(0.0, ends_s - _monotonic_s())) for job in jobs)

    def _work(self) -> None:
        while self._do_one():
            pass

    def _do_one(self) -> bool:
        """Wait for a job's time and do it; False if this thread is not needed any more."""
        job = self._next()
        if job is None:
            return False
        rest, failure = _outcome(job.run)
        with self._changed:
            self._busy -= 1
            self._failed += failure is not None
            if rest is not None:
                job.go_on(rest)
                heappush(self._waiting, job)
                if self._watched and self._waiting[0] is job:
                    self._changed.notify()
                return True  # if nobody watches, this very thread does next
            self._unfinished.discard(job)
        if failure is not None:
            _log.error("a message could not be sent: %s", failure)
        job.done.set()
        return True

    def _next(self) -> _Job | None:
        with self._changed:
            while self._waiting:
                wait_s = self._waiting[0].begins_s - self._timer.now_s()
                if wait_s <= 0:
                    return self._take()
                if self._watched:
                    break
                # One thread alone waits, however many jobs do.
                self._watched = True
                self._timer.wait(self._changed, wait_s)
                self._watched = False
            # In the same breath as the look at the queue: a job put later finds one thread fewer.
            self._running -= 1
            return None

    def _take(self) -> _Job:
        """Take the first job, and leave the rest to another thread; the caller holds the mutex."""
        job = heappop(self._waiting)
        self._places -= not job.begun
        self._busy += 1
        if self._waiting and not self._watched and self._running < self._threads:
            self._one_more()
        return job


class _Job:
    """One job, when it or its rest may begin, and whether it is done."""

    __slots__ = ("begins_s", "begun", "done", "number", "run")

    def __init__(self, run: Callable[[], object], begins_s: float, number: int) -> None:
        self.run = run
        self.begins_s = begins_s
        self.number = number
        self.begun = False
        self.done = threading.Event()

    def go_on(self, rest: Later) -> None:
        """Have the rest wait for its time."""
        self.run, self.begins_s, self.begun = rest.run, rest.begins_s, True

    def __lt__(self, other: _Job) -> bool:
        return (self.begins_s, self.number) < (other.begins_s, other.number)


def _outcome(job: Callable[[], object]) -> tuple[Later | None, str | None]:
    """Run a job; give its rest, or the type of what it raised, and keep nothing else of it."""
    try:
        rest = job()
    except BaseException as error:  # noqa: BLE001 - a job that exits must not take the thread along
        return None, type(error).__name__
    return rest if isinstance(rest, Later) else None, None


def _monotonic_s() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)  # see Timer


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
