"""
A breaker: a server that stays silent is left alone for a while, and asked by one request at a time.

Only silence counts, since only silence costs a caller anything: whatever a server refuses, or a
closed port, is answered at once without a breaker, and works again with the very next request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from authguard.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FAILURES", "Breaker"]

#: Timeouts in a row, without any answer between them, until a server is left alone.
FAILURES: Final = 5


class Breaker:
    """
    Counts one server's timeouts in a row.

    No lock is taken, so that a process may fork at any moment: who may probe is settled by taking
    the one due time out of a list, which only one thread can.

    Args:
        pause_s: From one probe to the next, in seconds.
        clock: Gives seconds.
    """

    def __init__(self, pause_s: float, clock: Callable[[], float]) -> None:
        self._pause_s = pause_s
        self._clock = clock
        self._silences = 0
        self._due_s = [0.0]

    @property
    def open(self) -> bool:
        """Whether the server is left alone, but for probes."""
        return self._silences >= FAILURES

    def enter(self) -> None:
        """
        Let a request through, or one in a pause while the server is silent.

        Raises:
            StoreUnavailable: The server is left alone.
        """
        if not self.open:
            return
        now_s = self._clock()
        try:
            due_s = self._due_s.pop()
        except IndexError:
            raise StoreUnavailable("breaker open") from None
        probes = now_s >= due_s
        self._due_s.append(now_s + self._pause_s if probes else due_s)
        if not probes:
            raise StoreUnavailable("breaker open")

    def answered(self) -> None:
        """Say that the server answered, whatever it said."""
        self._silences = 0

    def silent(self) -> None:
        """Say that it had its time and did not answer."""
        self._silences += 1
        if self._silences == FAILURES:
            self._due_s[:] = [self._clock() + self._pause_s]
