"""An attempt as an app holds it: a counted failure, until it is told otherwise."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from authguard.errors import HashingUnavailable, StoreUnavailable

if TYPE_CHECKING:
    from types import TracebackType

    from authguard._core import calls
    from authguard._core.attempt import Reservation
    from authguard._engine import Engine
    from authguard.decision import Cleared, Decision
    from authguard.identity import AccountKey

__all__ = ["Attempt"]

_log = logging.getLogger("authguard")


class Attempt:
    """
    An admitted attempt: a counted failure, until :meth:`succeed` says otherwise.

    Attributes:
        account: The key of the account that was counted: what ``resolve`` gave, or the name in
            its one spelling. None if no account was named.
        decision: What the limits said when they admitted it.
        device: The known device that it counts by; None if there is none, or it is worn out.
        settled: Whether the reservation has been given back in the store.
        unlocked: Locks that this very attempt had set and lifted again.
    """

    def __init__(
        self,
        engine: Engine,
        reservation: Reservation,
        decision: Decision,
        now_ms: int | None,
        account: AccountKey | None,
        *,
        device: str | None = None,
    ) -> None:
        self.account = account
        self.decision = decision
        self.device = device
        self.settled = False
        self.unlocked = 0
        self._engine = engine
        self._reservation = reservation
        self._passed_ms = now_ms

    @property
    def action(self) -> str:
        """The action it belongs to."""
        return self.decision.action

    @property
    def succeeded(self) -> bool:
        """Whether :meth:`succeed` was called."""
        return self._reservation.state == "succeeded"

    @property
    def pending(self) -> bool:
        """Whether nothing has been said of it yet; left so, it is a counted failure."""
        return self._reservation.state == "reserved"

    def succeed(self) -> None:
        """
        Say that the credential was proved: the reservation is given back.

        In short logs by account the failures of the same client before it are forgiven, and a
        lock that this very attempt set is lifted. A second call changes nothing. If the store is
        away the success stands, the reservation stays counted, and a warning is logged.
        """
        self._leave(
            self._reservation.leave(
                "succeeded",
                reserved_at_ms=self.decision.now_ms,
                now_ms=self._engine.now_ms(self._passed_ms),
            )
        )

    def release(self) -> None:
        """
        Say that the credential was never looked at: only the own reservation is given back.

        For a check that could not take place, such as no free hash slot. Never call it after
        anything about the credential was learnt: that would be a free guess.
        """
        self._leave(
            self._reservation.leave(
                "released",
                reserved_at_ms=self.decision.now_ms,
                now_ms=self._engine.now_ms(self._passed_ms),
            )
        )

    def _leave(self, call: calls.ScriptCall[Cleared] | None) -> None:
        if call is None or self.decision.degraded:
            return
        try:
            cleared = self._engine.store.run(call)
        except StoreUnavailable as error:
            _log.warning("%s: settle failed (%s); the entry stays", self.action, error.reason)
        else:
            self.settled = True
            self.unlocked = cleared.locks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """
        Leave what has not succeeded a counted failure.

        Save where ``HashingUnavailable`` ends the block: the machine was too busy to look at the
        password, and that must lock nobody out, so the attempt is released.
        """
        if isinstance(error, HashingUnavailable):
            self.release()
