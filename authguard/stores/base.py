"""What a store is: something that runs one script call, whole, and answers in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from authguard._core.calls import ScriptCall

__all__ = ["AsyncStore", "Store"]

T = TypeVar("T")


class Store(Protocol):
    """
    Runs script calls atomically, one after another.

    Attributes:
        spread: Its keys are spread over several servers by their hash tags, as on a cluster: a
            call may only name keys of one tag.
    """

    @property
    def spread(self) -> bool:
        """See above."""

    def run(self, call: ScriptCall[T]) -> T:
        """
        Run a call once and read its reply.

        Raises:
            StoreUnavailable: If there is no clear, well-formed answer within the deadline. The
                call may have run all the same; it is never sent a second time.
        """

    def one_deadline(self) -> AbstractContextManager[object]:
        """Let all calls of a block share one deadline, from now on; without it each has its own."""

    def close(self) -> None:
        """Let connections go."""


class AsyncStore(Protocol):
    """The same with ``await``; see :class:`Store`."""

    @property
    def spread(self) -> bool:
        """As in :class:`Store`."""

    async def run(self, call: ScriptCall[T]) -> T:
        """As in :class:`Store`; cancelled, it drops the connection, and the call may have run."""

    def one_deadline(self) -> AbstractContextManager[object]:
        """As in :class:`Store`, for all calls of the block in this task."""

    async def close(self) -> None:
        """Let connections go."""
