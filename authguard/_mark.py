"""
A mark in the store by which a loss of its data is noticed. Private.

``FLUSHALL``, a restart without persistence or a wrong snapshot leave nothing to be seen: the next
attempts are simply admitted. So a guard leaves a mark beside its counts and looks for it now and
then. Nothing is refused for it; whoever is on call is told that counts and locks began afresh.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from authguard._core import calls
from authguard._core.keys import record_key
from authguard.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard._core.steps import Steps
    from authguard._engine import Engine

__all__ = ["EVERY_S", "Mark"]

#: Seconds of a process between two looks: one call in so long beside those of its attempts.
EVERY_S: Final = 10.0

#: Bytes of a mark; two that were made apart never meet.
_BYTES: Final = 16

_LIFE_MS: Final = 366 * 86_400_000

_log = logging.getLogger("authguard")


class Mark:
    """
    A guard's mark.

    Args:
        engine: The guard's.
        clock: Gives seconds that never stop.

    Attributes:
        lost: Is told of a loss, besides the log; None: nobody is.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self.lost: Callable[[], None] | None = None
        self._engine = engine
        self._clock = clock
        self._seen: bytes | None = None
        self._due_s = clock() + EVERY_S
        pseudonyms = engine.pseudonyms[0]
        self._key = record_key(pseudonyms.of("global", ""), pseudonyms.mac("mark"))

    def is_due(self) -> bool:
        """Tell whether it is time to look."""
        return self._clock() >= self._due_s

    def look(self) -> Steps[None]:
        """Look for the mark; a store that gives no answer is looked at later."""
        self._due_s = self._clock() + EVERY_S
        try:
            mark: bytes = yield calls.mark(
                self._key,
                os.urandom(_BYTES),
                life_ms=_LIFE_MS,
                now_ms=self._engine.now_ms(None),
            )
        except StoreUnavailable:
            return
        seen, self._seen = self._seen, mark
        if seen not in {None, mark}:
            _log.error("the store has lost data: counts, locks and blocks may have begun afresh")
            self._tell()

    def _tell(self) -> None:
        try:
            if self.lost is not None:
                self.lost()
        except Exception:  # noqa: BLE001 (the app's own; the attempt's answer stands)
            _log.exception("what was to be told of lost data failed")
