"""
The last moment of a call, by the server's own clock: after it nobody waits for the answer.

A server that was stopped finds in its sockets what it was sent meanwhile, and would do it all when
it wakes: people who were told to come back later would find themselves counted, or locked. So each
charge says until when it is wanted. The server's clock is known from its last answer; before the
first one nothing is said. If that clock is set forward, the next answer corrects this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from authguard.stores._address import Node

__all__ = ["LastMoments"]


class LastMoments:
    """Knows how far each server's clock is from ours, which counts from nobody knows when."""

    def __init__(self) -> None:
        self._ahead_ms: dict[Node, int] = {}

    def of(self, node: Node, ends_s: float) -> int | str:
        """
        Give the last moment, milliseconds since the epoch by the server's clock; "": not known.

        Args:
            node: The server.
            ends_s: When the decision must be over, by our clock, in seconds.
        """
        ahead_ms = self._ahead_ms.get(node)
        return "" if ahead_ms is None else int(ends_s * 1000) + ahead_ms

    def heard(self, node: Node, reply: object, sent_s: float) -> None:
        """
        Learn from a reply that begins with the server's clock.

        Args:
            node: The server.
            reply: As it came.
            sent_s: When it was asked, by our clock, in seconds. The server read its own after
                that, so what we take it for is never too early.
        """
        if isinstance(reply, list) and reply and type(reply[0]) is int:
            self._ahead_ms[node] = reply[0] - int(sent_s * 1000)
