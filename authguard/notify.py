"""
What goes out to an account's owner: messages, and who carries them.

A notifier is one method. It runs in the background, after the answer, so it may take its time, and
it tells of failure by raising: what it raises is logged by its type alone, since its text may hold
an address.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["Channel", "Kind", "Message", "Notifier"]

Channel: TypeAlias = Literal["email", "sms"]
Kind: TypeAlias = Literal["code", "reset", "unlock", "notice"]


@dataclass(frozen=True, slots=True)
class Message:
    """
    One message to one recipient.

    Attributes:
        kind: ``code``, ``reset`` (a link), ``unlock`` (a link) or ``notice``.
        channel: How it goes: ``email`` or ``sms``.
        to: The stored address or number; never one that somebody typed.
        subject: One line; empty for text messages.
        body: The whole text, plain.
        code: The code in it, if there is one.
        token: The token of the link in it, if there is one.
    """

    kind: Kind
    channel: Channel
    to: str = field(repr=False)
    subject: str
    body: str = field(repr=False)
    code: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


class Notifier(Protocol):
    """Carries messages: the app's mail and text-message providers."""

    def send(self, message: Message) -> None:
        """
        Send it once; return when the provider has taken it, raise if it has not.

        Called from a thread in the background, more than one at a time. Give every connection a
        timeout. Don't send again by yourself: a message that may have gone out must not go twice.

        Args:
            message: What to send.
        """
        ...
