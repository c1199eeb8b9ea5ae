"""The story of a sign-in: reserve, then verify, then give back on success."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from authguard.errors import HashingUnavailable, InvalidInput
from authguard.identity import AccountKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from authguard.accounts import Account, Accounts

__all__ = ["Checked", "ReservedAttempt", "Verifier", "sign_in"]


class ReservedAttempt(Protocol):
    """A reservation that counts as a failure until it is told otherwise."""

    def succeed(self) -> None:
        """Say that the credential was proved."""

    def release(self) -> None:
        """Say that the credential was never looked at."""


AttemptT = TypeVar("AttemptT", bound=ReservedAttempt)


@dataclass(frozen=True, slots=True)
class Checked(Generic[AttemptT]):
    """
    How a credential was found.

    Attributes:
        account: Whose it is said to be; None if there is no such account.
        proved: Whether it is right, and its account active. Without it, nothing about
            ``account`` may be told.
        attempt: The reservation, by now given back if it is proved.
    """

    account: Account | None
    proved: bool
    attempt: AttemptT


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
    reserve: Callable[[AccountKey, Account | None], AttemptT],
    charge_client: Callable[[], None],
    normalise: Callable[[object], str],
    passwords: Verifier,
    accounts: Accounts,
    second_factors: bool,
) -> Checked[AttemptT]:
    """
    Check one name and password, and tell whose they are.

    Every name of an account counts under the account's one key, a text that names nobody under
    itself. Unknown, wrong and disabled accounts cost the same one hash and get the same answer.
    The password of an account with a second factor proves half of what is asked: the caller must
    ask for the other half. Where it can't, such an account is never signed in by half: even the
    right password is answered and counted like a wrong one.

    Args:
        read: Gives the typed name and password, or raises ``InvalidInput``.
        reserve: Reserves an attempt for an account's key, and the account if there is one; raises
            ``Denied`` and ``StoreUnavailable``.
        charge_client: Counts a request that names no usable account against its client alone;
            raises the same.
        normalise: Gives a name's one spelling; raises ``InvalidInput`` for what can't be one.
        passwords: Computes the hashes.
        accounts: Finds the accounts.
        second_factors: Whether the caller can ask for a second factor.

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
        attempt = reserve(key, account)
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
    if account is None or not right or not account.active:
        return Checked(account, proved=False, attempt=attempt)
    if account.second_factor and not second_factors:
        return Checked(account, proved=False, attempt=attempt)
    attempt.succeed()
    if stored is not None and passwords.needs_rehash(stored):
        with suppress(HashingUnavailable):  # the success stands; the next sign-in tries again
            accounts.replace_password_hash(account.key, stored, passwords.hash(password))
    return Checked(account, proved=True, attempt=attempt)
