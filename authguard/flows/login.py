"""The story of a sign-in: reserve, then verify, then give back on success."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from authguard.errors import HashingUnavailable, InvalidInput
from authguard.identity import AccountKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.accounts import Account, Accounts

__all__ = ["ReservedAttempt", "Verifier", "sign_in"]


class ReservedAttempt(Protocol):
    """A reservation that counts as a failure until it is told otherwise."""

    def succeed(self) -> None:
        """Say that the credential was proved."""

    def release(self) -> None:
        """Say that the credential was never looked at."""


class Verifier(Protocol):
    """What computes password hashes; :class:`authguard.Passwords` does."""

    def verify(self, stored: str | None, password: str) -> bool:
        """Tell whether the password is right; one hash, also for None, which never matches."""

    def needs_rehash(self, stored: str) -> bool:
        """Tell whether the hash was made with other than today's parameters."""

    def hash(self, password: str) -> str:
        """Hash with today's parameters."""


def sign_in(
    read: Callable[[], tuple[str, str]],
    *,
    reserve: Callable[[AccountKey], ReservedAttempt],
    charge_client: Callable[[], None],
    normalise: Callable[[object], str],
    passwords: Verifier,
    accounts: Accounts,
) -> Account | None:
    """
    Check one name and password, and tell whose they are.

    Every name of an account counts under the account's one key, a text that names nobody under
    itself. Unknown, wrong, disabled and second-factor accounts cost the same one hash and get
    the same answer. An account with a second factor is never signed in by its password alone:
    this version has no one-time codes, so even the right password is answered and counted like
    a wrong one.

    Args:
        read: Gives the typed name and password, or raises ``InvalidInput``.
        reserve: Reserves an attempt for an account's key; raises ``Denied`` and
            ``StoreUnavailable``.
        charge_client: Counts a request that names no usable account against its client alone;
            raises the same.
        normalise: Gives a name's one spelling; raises ``InvalidInput`` for what can't be one.
        passwords: Computes the hashes.
        accounts: Finds the accounts.

    Returns:
        The account that is now proved; None if the answer is "wrong name or password", whatever
        the cause.

    Raises:
        Denied: A limit refuses; no hash was computed.
        Unavailable: The store or the hashing gave no answer; nothing was verified.
        InvalidInput: The request can't be used; it was charged to the client, to no account.
    """
    try:
        typed, password = read()
        name = normalise(typed)  # refused here, before it reaches the app's database
        account = accounts.find(typed)
        key = AccountKey(name) if account is None else AccountKey.of_app(account.key)
        attempt = reserve(key)
    except InvalidInput:
        charge_client()
        raise
    stored = None if account is None else account.password_hash
    try:
        right = passwords.verify(stored, password)
    except HashingUnavailable:
        attempt.release()
        raise
    # All is asked after the hash, so that the work tells nothing.
    if not right or account is None or not account.active or account.second_factor:
        return None
    attempt.succeed()
    if stored is not None and passwords.needs_rehash(stored):
        with suppress(HashingUnavailable):  # the success stands; the next sign-in tries again
            accounts.replace_password_hash(account.key, stored, passwords.hash(password))
    return account
