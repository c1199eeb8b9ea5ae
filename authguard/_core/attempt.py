"""
The life of an attempt.

::

    reserved ──succeed──▶ succeeded   gives back its entries and its client's failures before it
       │
       ├──────release──▶ released     the credential was never looked at: gives back its entries
       │
       └─────(nothing)─▶ a counted failure

Doing nothing is a failure: a crash, a timeout or a forgotten call leaves the reservation where
it is. The two ways out are taken once; a second call changes nothing. ``_core/groups.py`` holds
the state, and one reservation for each call that the attempt needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from authguard._core import calls

if TYPE_CHECKING:
    from authguard._core.calls import Load, ScriptCall
    from authguard._core.keys import Binding
    from authguard.decision import Cleared, Decision

__all__ = ["Reservation"]


@dataclass(slots=True)
class Reservation:
    """
    A place in every log of one call, and the way to give it back.

    Attributes:
        binding: The limits and their keys.
        attempt_id: Five bytes, the client's tag and a nonce; names the entries as its own.
        cost: Places it takes in each log.
        knows_client: Whether the client is known; without one nothing but its own is forgiven.
    """

    binding: Binding
    attempt_id: bytes
    cost: int
    knows_client: bool

    def acquire(self, now_ms: int | None, *, load: Load | None = None) -> ScriptCall[Decision]:
        """Ask for the places; ``load`` as in :func:`authguard._core.calls.acquire`."""
        return calls.acquire(
            self.binding, cost=self.cost, attempt_id=self.attempt_id, now_ms=now_ms, load=load
        )

    def leave(
        self,
        into: Literal["succeeded", "released"],
        *,
        reserved_at_ms: int,
        now_ms: int | None,
        load: Load | None = None,
    ) -> ScriptCall[Cleared]:
        """Give the places back; the second time it finds nothing, and changes nothing."""
        return calls.settle(
            self.binding,
            reserved_at_ms=reserved_at_ms,
            attempt_id=self.attempt_id,
            cost=self.cost,
            forgive=into == "succeeded" and self.knows_client,
            now_ms=now_ms,
            load=load,
        )
