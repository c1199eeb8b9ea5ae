"""The story of a forgotten password: a link to the stored address, and a new password once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from authguard.errors import HashingUnavailable, InvalidInput
from authguard.flows.login import ReservedAttempt
from authguard.identity import AccountKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.accounts import Member, Members
    from authguard.one_time import Holder

__all__ = ["RESET", "Links", "ask_for_link", "bound_to", "set_new_password", "take_link"]

#: What the link is for.
RESET: Final = "reset"

AttemptT = TypeVar("AttemptT", bound=ReservedAttempt)


class Links(Protocol):
    """What takes links; :class:`authguard.one_time.OneTime` does."""

    def holder(self, bearer: str) -> Holder | None:
        """Tell whose token it is."""

    def is_live(self, holder: Holder, token: str, *, bound_to: tuple[str, ...]) -> bool:
        """Tell whether it could be used now."""

    def take_link(self, holder: Holder, token: str, *, bound_to: tuple[str, ...]) -> bool:
        """Use it up if it is the live one; of parallel tries one is told True."""


def bound_to(account: Member) -> tuple[str, ...]:
    """List what a link dies with: it is worth nothing once one of these has changed."""
    return (account.password_hash or "", account.email or "", account.session_stamp)


def ask_for_link(
    read: Callable[[], str],
    *,
    reserve: Callable[[AccountKey], object],
    charge_client: Callable[[], None],
    normalise: Callable[[object], str],
    accounts: Members,
    send: Callable[[Member | None], None],
) -> None:
    """
    Send a link, if there is an account to send it to; change nothing else.

    Args:
        read: Gives the typed name, or raises ``InvalidInput``.
        reserve: Reserves the sending by the account's key.
        charge_client: Counts a request that names no usable account against its client alone.
        normalise: Gives a name's one spelling.
        accounts: Finds the accounts.
        send: Makes and sends the link in the background, to the stored address; for None, does as
            much and sends nothing.

    Raises:
        Denied: A limit refuses; nothing is sent.
        StoreUnavailable: The store gave no answer; nothing is sent.
        InvalidInput: The request can't be used; it was charged to the client.
    """
    try:
        typed = read()
        name = normalise(typed)
        account = accounts.find(typed)
        reserve(AccountKey(name) if account is None else AccountKey.of_app(account.key))
    except InvalidInput:
        charge_client()
        raise
    # Who has no password signs in elsewhere, and must not get one by mail.
    due = account is not None and account.active and account.password_hash is not None
    send(account if due else None)


def take_link(
    token: str,
    purpose: str,
    *,
    links: Links,
    accounts: Members,
    before: Callable[[Member], None] = lambda _account: None,
) -> Member | None:
    """
    Use a link up, and give the account it is for; None for every bad one.

    Args:
        token: The link's token.
        purpose: What it must be for.
        links: Takes it.
        accounts: Finds the account.
        before: Runs for the account of a link that could be used, before it is used up; what it
            raises leaves the link as it was.
    """
    holder = links.holder(token)
    if holder is None or holder.purpose != purpose or not holder.known:
        return None
    account = accounts.get(holder.account)
    if account is None or not account.active:
        return None
    proved_by = bound_to(account)
    if not links.is_live(holder, token, bound_to=proved_by):
        return None  # nothing is asked of the account for a link that is dead
    before(account)
    return account if links.take_link(holder, token, bound_to=proved_by) else None


def set_new_password(
    read: Callable[[], tuple[str, str]],
    *,
    reserve: Callable[[], ReservedAttempt],
    links: Links,
    accounts: Members,
    accept: Callable[[str, Member], None],
    hash_password: Callable[[str], str],
) -> Member | None:
    """
    Set a new password by a link.

    Args:
        read: Gives the token and the new password, or raises ``InvalidInput``.
        reserve: Reserves the try by its client; raises ``Denied`` and ``StoreUnavailable``.
        links: Takes the link.
        accounts: Keeps the password.
        accept: Raises ``InvalidInput`` for a password that is not good enough for this account.
        hash_password: Hashes it.

    Returns:
        The account as it was before; None for every bad token, whatever is wrong with it.

    Raises:
        Denied: A limit refuses; the link was not looked at.
        Unavailable: The store or the hashing gave no answer. The link works unless the store took
            it before it fell silent.
        InvalidInput: The request or the new password can't be used; the link still works.
    """
    try:
        token, password = read()
    except InvalidInput:
        reserve()
        raise
    attempt = reserve()
    hashed = ""

    def prepare(account: Member) -> None:
        nonlocal hashed
        accept(password, account)
        hashed = hash_password(password)  # before the link is used up: it can fail for want of room

    try:
        account = take_link(token, RESET, links=links, accounts=accounts, before=prepare)
    except HashingUnavailable:
        attempt.release()  # the machine was busy, which is nobody's failure
        raise
    if account is None:
        return None
    accounts.set_password(account.key, hashed)
    attempt.succeed()
    return account
