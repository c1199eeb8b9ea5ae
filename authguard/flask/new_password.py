"""What a new password must have, unless an app says more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from authguard.errors import InvalidInput

if TYPE_CHECKING:
    from authguard.accounts import Member

__all__ = ["MIN_PASSWORD", "at_least_eight"]

#: Shortest new password, in characters. NIST SP 800-63B-4, 3.1.1.2: 15 where it is the only
#: factor, never below 8; the rest is a blocklist's work.
MIN_PASSWORD: Final = 8


def at_least_eight(password: str, _account: Member) -> None:
    """
    Refuse a new password that is too short.

    Raises:
        InvalidInput: It has fewer than eight characters.
    """
    if len(password) < MIN_PASSWORD:
        raise InvalidInput("password", f"must have at least {MIN_PASSWORD} characters")
