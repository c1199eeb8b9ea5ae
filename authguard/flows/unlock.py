"""The story of an unlock link: it ends the owner's wait, and signs nobody in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from authguard.errors import InvalidInput
from authguard.flows.password_reset import take_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.accounts import Member, Members
    from authguard.flows.login import ReservedAttempt
    from authguard.flows.password_reset import Links

__all__ = ["UNLOCK", "unlock"]

#: What the link is for.
UNLOCK: Final = "unlock"


def unlock(
    read: Callable[[], str],
    *,
    reserve: Callable[[], ReservedAttempt],
    links: Links,
    accounts: Members,
    lift: Callable[[Member], None],
) -> Member | None:
    """
    End the lock of the account that the link names.

    Args:
        read: Gives the token, or raises ``InvalidInput``.
        reserve: Reserves the try by its client; raises ``Denied`` and ``StoreUnavailable``.
        links: Takes the link.
        accounts: Finds the account.
        lift: Ends the lock.

    Returns:
        The account; None for every bad token, whatever is wrong with it.

    Raises:
        Denied: A limit refuses; the link was not looked at.
        StoreUnavailable: The store gave no answer.
        InvalidInput: The request can't be used; it was charged to the client.
    """
    try:
        token = read()
    except InvalidInput:
        reserve()
        raise
    attempt = reserve()
    # Lifted first: if the store falls silent in between, the link still works, and lifting twice
    # is lifting once.
    account = take_link(token, UNLOCK, links=links, accounts=accounts, before=lift)
    if account is None:
        return None
    attempt.succeed()
    return account
