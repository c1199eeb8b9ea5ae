"""Where an operator works, and whom a command means; given to each command, whoever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard._notes import Act
    from authguard.accounts import Members
    from authguard.guard import Guard
    from authguard.identity import Address

__all__ = ["Desk", "Event", "Selection"]


@dataclass(frozen=True, slots=True)
class Selection:
    """
    What a command names: an account, a client, a network, or an account from one client.

    Attributes:
        account: The account, in any spelling.
        client: An address; with the account, the pair of the two.
        network: An address of the network; alone.
    """

    account: str | None = None
    client: Address | None = None
    network: Address | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """What is given, in the words of a policy."""
        given = (("account", self.account), ("client", self.client), ("network", self.network))
        return tuple(part for part, value in given if value is not None)

    @property
    def named(self) -> dict[str, Any]:
        """The same as arguments of :class:`authguard.Guard`."""
        return {part: getattr(self, part) for part in self.parts}


@dataclass(frozen=True, slots=True)
class Event:
    """
    What the app is told of an act.

    Attributes:
        act: The act.
        subject: The subject's pseudonym: the account's, else the client's or the network's.
        unlocked: The actions of which a lock was ended.
    """

    act: Act
    subject: str
    unlocked: tuple[str, ...] = ()


def _nobody_is_told(_event: Event) -> None:
    """Stand in where there is no app."""


def _nothing_to_say(_account: str) -> None:
    """Stand in where nothing need be said of names."""


@dataclass(frozen=True, slots=True)
class Desk:
    """
    What a command works with.

    Attributes:
        guard: The guard whose counts, locks and blocks are looked after.
        members: The app's accounts, where they keep which of them must be recovered.
        tell: Called once for each act, after it.
        word: Gives what an operator must know of how a name counts, or None.
    """

    guard: Guard
    members: Members | None = None
    tell: Callable[[Event], None] = _nobody_is_told
    word: Callable[[str], str | None] = _nothing_to_say
