"""What a log keeps of an attempt."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["NOBODY", "Entry"]


NOBODY: Final = bytes(5)


class Entry(NamedTuple):
    at_ms: int
    attempt_id: bytes

    @property
    def client_tag(self) -> bytes:
        return self.attempt_id[:3]
