"""What a store is: something that runs one script call, whole, and answers in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from authguard._core.calls import ScriptCall

__all__ = ["Store"]

T = TypeVar("T")


class Store(Protocol):
    """Runs script calls atomically, one after another."""

    def run(self, call: ScriptCall[T]) -> T:
        """
        Run a call once and read its reply.

        Raises:
            StoreUnavailable: If there is no clear, well-formed answer within the deadline. The
                call may have run all the same; it is never sent a second time.
        """

    def close(self) -> None:
        """Let connections go."""
