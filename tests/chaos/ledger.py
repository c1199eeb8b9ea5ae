"""
What really happened, written down by those who check credentials, never by the guard.

All threads and processes of a scenario append to one file; the system keeps the order. A place is
given up here *before* the guard hears of a success, so that at every line no key of this book has
more places taken than the store had.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LIMITS", "POLICIES", "Book", "Key", "Ledger", "Person", "keys"]

#: Places of a key. The windows are longer than any test, and in logs of more than an hour a success
#: gives back nothing but its own place: what is taken stays taken.
LIMITS: Final = {"account": 5, "client": 20}

_POLICY: Final[dict[str, Any]] = {
    "outage": "deny",
    "limits": [
        {"name": "account", "by": ["account"], "sliding_log": "5/2h", "lockout": "2h"},
        {"name": "client", "by": ["client"], "sliding_log": "20/2h"},
    ],
}

#: The newsletter is let through while the store is away; a sign-in never is.
POLICIES: Final = {"login": _POLICY, "newsletter": _POLICY | {"outage": "allow"}}


class Person(NamedTuple):
    """Who tries what, and whether the credential is right."""

    action: str
    account: str
    client: str
    right: bool = False


class Key(NamedTuple):
    """What a limit counts: an account or a client, for one action."""

    action: str
    kind: str
    name: str


@dataclass(slots=True)
class Book:
    """
    What the ledger says of one key.

    Attributes:
        limit: Its places.
        asked: Attempts that were made on it.
        begun: Verifications that ran.
        taken: Verifications that ran, without those that proved right.
        most: The most that were taken at once, those that still ran included.
        unsettled: Successes of which the store could not be told.
        unknown: Attempts that got no verdict: the store may have charged them.
        degraded: Attempts let through uncounted.
        lives: Once, and once more for each time the data were lost after the first attempt on it.
    """

    limit: int
    asked: int = 0
    begun: int = 0
    taken: int = 0
    most: int = 0
    unsettled: int = 0
    unknown: int = 0
    degraded: int = 0
    lives: int = 1

    @property
    def over(self) -> int:
        """Verifications that no limit would have admitted."""
        return max(0, self.most - self.limit * self.lives)

    @property
    def uncertain(self) -> int:
        """Attempts that the store may have counted: the caller never heard."""
        return self.unsettled + self.unknown + self.degraded

    def read(self, mark: str) -> None:
        """Take a line in."""
        match mark:
            case "asked":
                self.asked += 1
            case "begun":
                self.begun += 1
                self.taken += 1
                self.most = max(self.most, self.taken)
            case "proved":
                self.taken -= 1
            case "unsettled":
                self.unsettled += 1
            case "unknown":
                self.unknown += 1
            case "degraded":
                self.degraded += 1
            case "lost" if self.asked:
                self.lives += 1


class Ledger:
    """
    Appends a line for each step; for threads, and for processes that open the same file.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, mark: str, who: Person | None = None) -> None:
        """Append a line, by a single write: no other can come into its middle."""
        parts = (mark,) if who is None else (mark, who.action, who.account, who.client)
        os.write(self._file, (" ".join(parts) + "\n").encode())

    def people(self) -> set[Person]:
        """List who tried."""
        return {who for mark, who in self._lines() if who is not None and mark == "asked"}

    def books(self) -> dict[Key, Book]:
        """Add everything up, key by key."""
        books: dict[Key, Book] = defaultdict(lambda: Book(0))
        for mark, who in self._lines():
            if who is None:
                for book in books.values():
                    book.read(mark)
            else:
                for key in keys(who):
                    books[key].limit = LIMITS[key.kind]
                    books[key].read(mark)
        return dict(books)

    def _lines(self) -> Iterator[tuple[str, Person | None]]:
        for line in self.path.read_text().splitlines():
            mark, *who = line.split(" ")
            if who:
                action, account, client = who
                yield mark, Person(action, account, client)
            else:
                yield mark, None

    def close(self) -> None:
        """Let the file go."""
        os.close(self._file)


def keys(who: Person) -> tuple[Key, Key]:
    """Name what an attempt counts on."""
    return Key(who.action, "account", who.account), Key(who.action, "client", who.client)
