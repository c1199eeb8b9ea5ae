"""
The load probe: measures what the service can still do, and has elastic limits follow it.

::

    def database() -> None:
        engine.execute("SELECT 1")                     # how long it takes is what is measured

    with LoadProbe(guard, database, good_ms=20, bad_ms=500, least=0.1):
        serve()

No wait depends on a clock that freezegun stops.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from inspect import iscoroutinefunction
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeGuard

from authguard.checks import shown
from authguard.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LoadProbe"]

_log = logging.getLogger("authguard")

#: How many intervals a report outlives its probe, where nothing else is said.
_INTERVALS: Final = 5

#: Bounds of what is given, in seconds: more often than this would be a load of its own, and what
#: is reported must lapse before anybody has forgotten why.
_SHORTEST_S: Final = 0.01
_LONGEST_S: Final = 86_400.0


class _Guard(Protocol):
    """What is needed of a guard."""

    def load(self, share: float, *, for_ms: int = 60_000) -> None:
        """Say the load."""


class LoadProbe:
    """
    Measures in a background thread of this process, and tells the guard the share that is left.

    The share is 1 at ``good_ms`` or less, ``least`` at ``bad_ms`` or more, and falls evenly in
    between. It is ``least``, too, when the measurement raises, and when it hasn't returned after
    ``bad_ms``: a database that hangs doesn't stop the report, and no second measurement is begun
    while the first one hangs.

    A report is repeated at each interval and lapses by itself after the probe's end; a share of 1
    is told once, when it follows another, so that an idle probe never overwrites what somebody
    else has said. Nothing is ever raised into the app. A forked child goes on with threads of its
    own.

    Args:
        guard: The guard; see :meth:`authguard.Guard.load`.
        measure: Does one small query and returns None, its time being what counts; or returns a
            number of milliseconds to be judged instead. Called in one thread, never twice at once.
        good_ms: Up to here all is well, in milliseconds.
        bad_ms: From here on nothing better than ``least`` is left, in milliseconds.
        least: The share that always stays, from 0 to below 1.
        every_s: From the begin of one measurement to that of the next, in seconds.
        hold_s: How long a report holds, in seconds; None: five intervals, or five times ``bad_ms``
            where that is longer.

    Raises:
        ConfigurationError: AG057, naming the argument and the mend.
    """

    def __init__(
        self,
        guard: _Guard,
        measure: Callable[[], float | None],
        *,
        good_ms: float,
        bad_ms: float,
        least: float = 0.0,
        every_s: float = 1.0,
        hold_s: float | None = None,
    ) -> None:
        load = getattr(guard, "load", None)
        if not callable(load) or iscoroutinefunction(load):
            _fail("guard", guard, "no guard", "give a Guard; of an AuthGuard, its .guard")
        _check_function(measure)
        if not _is_number(good_ms) or not good_ms >= 0:
            _fail("good_ms", good_ms, "no number of milliseconds from 0", "write such as 20")
        if not _is_number(bad_ms) or not good_ms < bad_ms <= _LONGEST_S * 1000:
            _fail("bad_ms", bad_ms, "not above good_ms, or over a day", "write such as 500")
        if not _is_number(least) or not 0 <= least < 1:
            _fail("least", least, "no share from 0 to below 1", "write such as 0.1")
        if not _is_number(every_s) or not _SHORTEST_S <= every_s <= _LONGEST_S:
            _fail("every_s", every_s, "no number of seconds from 0.01 to a day", "write such as 1")
        pause_s = max(every_s, bad_ms / 1000)  # the longest from one report to the next
        if hold_s is None:
            hold_s = _INTERVALS * pause_s
        elif not _is_number(hold_s) or not pause_s < hold_s <= _INTERVALS * _LONGEST_S:
            _fail(
                "hold_s",
                hold_s,
                "not longer than the time between two reports (every_s or bad_ms), or over 5 days",
                f"write at least twice that, or leave it out: {_INTERVALS * pause_s:g}",
            )
        self._guard = guard
        self._measure = measure
        self._good_ms = good_ms
        self._bad_ms = bad_ms
        self._least = least
        self._every_s = every_s
        self._for_ms = math.ceil(hold_s * 1000)
        self._mutex = threading.Lock()
        self._run: _Run | None = None

    def start(self) -> Self:
        """Begin to measure; without effect on a probe that does."""
        with self._mutex:
            if self._run is None:
                self._begin()
        return self

    def stop(self) -> None:
        """
        End it; what was reported last lapses by itself.

        Waits for a report that is under way, not for a measurement.
        """
        with self._mutex:
            run, self._run = self._run, None
        _running.discard(self)
        if run is not None:
            run.end()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begin(self) -> None:
        """Start the threads; the caller holds the mutex."""
        run = _Run(self._measure)
        _running.add(self)
        self._run = run
        run.reporter = threading.Thread(
            target=self._work, args=[run], name="authguard-load", daemon=True
        )
        try:
            run.reporter.start()
        except RuntimeError:  # the system has no thread to give
            _log.error("load probe: not started, since no thread could be")
            self._run = None
            _running.discard(self)

    def _begin_in_child(self) -> None:
        # The parent's threads don't exist here; a lock that one of them held would stay held.
        self._mutex = threading.Lock()
        self._begin()

    def _work(self, run: _Run) -> None:
        told = _Told()
        while not run.ended.is_set():
            begun_s = _monotonic_s()
            share = self._share(run, told)
            if not run.ended.is_set():
                self._report(share, told)
            run.ended.wait(max(0.0, begun_s + self._every_s - _monotonic_s()))
        run.measurer.stop()

    def _share(self, run: _Run, told: _Told) -> float:
        """Measure, for as long as ``bad_ms`` at most, and judge."""
        found = run.measurer.measure(self._bad_ms / 1000)
        told.failure(found if isinstance(found, str) else None)
        if isinstance(found, str):
            return self._least
        worse = (found - self._good_ms) / (self._bad_ms - self._good_ms)
        return 1 - (1 - self._least) * min(1.0, max(0.0, worse))

    def _report(self, share: float, told: _Told) -> None:
        """Tell the guard, unless it stands there already."""
        if told.share == share == 1:
            return
        try:
            self._guard.load(share, for_ms=self._for_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store of the app's own raises
            reason = error.reason if isinstance(error, StoreUnavailable) else type(error).__name__
            told.unreported(reason)
        else:
            told.reported(share)


class _Run:
    """One start's threads."""

    def __init__(self, measure: Callable[[], float | None]) -> None:
        self.ended = threading.Event()
        self.measurer = _Measurer(measure)
        self.reporter: threading.Thread | None = None

    def end(self) -> None:
        """End them: the reporter now, the measurer as soon as its measurement returns."""
        self.ended.set()
        self.measurer.give_up()
        if self.reporter is not None and self.reporter is not threading.current_thread():
            self.reporter.join()


class _Measurer:
    """Runs the app's function in a thread of its own, which may hang with it."""

    def __init__(self, measure: Callable[[], float | None]) -> None:
        self._measure = measure
        self._asked: SimpleQueue[_Measurement | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._latest: _Measurement | None = None
        self._given_up = False

    def measure(self, patience_s: float) -> float | str:
        """
        Measure once; give the milliseconds, or a failure in words.

        Args:
            patience_s: Longest wait, in seconds.
        """
        latest = self._latest
        if latest is not None and not latest.done.is_set():
            return "the measurement hangs"
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="authguard-load-measure", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return "no thread could be started"
            self._thread = thread
        self._latest = latest = _Measurement()
        if self._given_up:  # looked at after it could be seen, so that one of the two is in time
            return latest.found
        self._asked.put(latest)
        if not latest.done.wait(patience_s):
            return "the measurement hangs"
        return latest.found

    def give_up(self) -> None:
        """Let :meth:`measure` return, whatever hangs."""
        self._given_up = True
        if self._latest is not None:
            self._latest.done.set()

    def stop(self) -> None:
        """Let the thread end once it has nothing to do."""
        self._asked.put(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            begun_s = _monotonic_s()
            found: object
            try:
                found = self._measure()
            except BaseException as error:  # noqa: BLE001 - what exits must not take the thread along
                # By its type alone: its text may hold the database's address and password.
                asked.found = f"the measurement raised {type(error).__name__}"
            else:
                took_ms = (_monotonic_s() - begun_s) * 1000
                asked.found = _milliseconds(took_ms if found is None else found)
            asked.done.set()


class _Measurement:
    """One measurement: whether it is done, and the milliseconds or the failure that it found."""

    __slots__ = ("done", "found")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.found: float | str = "the measurement was given up"


class _Told:
    """What was reported and logged so far, so that nothing is logged at each interval."""

    def __init__(self) -> None:
        self.share: float | None = 1.0  # where nobody has said anything
        self._low = False
        self._failure: str | None = None
        self._unreported = False

    def reported(self, share: float) -> None:
        """Keep what the guard has taken."""
        if self._unreported:
            _log.info("load probe: the load is reported again")
        low = share < 1
        if low and not self._low:
            _log.warning("load probe: elastic limits are at %.3f of their numbers", share)
        elif self._low and not low:
            _log.info("load probe: elastic limits are whole again")
        self.share, self._low, self._unreported = share, low, False

    def unreported(self, reason: str) -> None:
        """Keep that nobody knows what stands there now."""
        if not self._unreported:
            _log.error("load probe: the load could not be reported: %s", reason)
        self.share, self._unreported = None, True

    def failure(self, failure: str | None) -> None:
        """Keep what is wrong with the measurement, or that nothing is."""
        if failure is not None and failure != self._failure:
            _log.warning("load probe: %s", failure)
        self._failure = failure


def _milliseconds(found: object) -> float | str:
    """Read what a measurement gave."""
    if _is_number(found) and found >= 0:
        return float(found)
    return f"the measurement gave a {type(found).__name__} that is no number of milliseconds"


def _check_function(measure: object) -> None:
    if not callable(measure):
        _fail("measure", measure, "no function", "give one that does a small query")


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def _fail(argument: str, value: object, problem: str, mend: str) -> None:
    raise ConfigurationError(
        "AG057", f"LoadProbe({argument}=…)", f"{shown(value)} is {problem}", mend
    )


def _monotonic_s() -> float:
    # Not time.monotonic: freezegun stops that one.
    return time.clock_gettime(time.CLOCK_MONOTONIC)


#: Probes that measure in this process; a forked child starts them again.
_running: set[LoadProbe] = set()


def _start_all_in_child() -> None:
    for probe in list(_running):
        probe._begin_in_child()  # noqa: SLF001 - the same module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all_in_child)
