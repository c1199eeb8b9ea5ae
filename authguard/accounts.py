"""
What authguard needs to know of an app's accounts: protocols, no base class.

:class:`Account` and :class:`Accounts` are enough to sign in by password. Codes, links, devices and
recovery, which the blueprint has with a ``notifier``, need the rest: :class:`Member` and
:class:`Members`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Account", "Accounts", "Member", "Members"]


class Account(Protocol):
    """
    One account, as the app keeps it; only read, never written.

    A plain object, a frozen dataclass or a row of an ORM will do.
    """

    @property
    def key(self) -> str:
        """
        The one key that every name of the account resolves to, and that never changes.

        Limits count by it, and the session holds it. Take something random that nobody can type,
        such as a UUID: a typed text that names no account counts under itself, so whoever can
        type a key can use up its tries. Taken as it is: letter case tells two keys apart.
        """
        ...

    @property
    def username(self) -> str:
        """The name shown to its owner."""
        ...

    @property
    def password_hash(self) -> str | None:
        """The encoded argon2 hash; None if the account has no password."""
        ...

    @property
    def active(self) -> bool:
        """Whether the account may sign in, and stay signed in."""
        ...

    @property
    def second_factor(self) -> bool:
        """Whether the password alone must not sign in."""
        ...


class Accounts(Protocol):
    """Where accounts are looked up: a thin layer on the app's own tables."""

    def find(self, identifier: str) -> Account | None:
        """
        Return the account that the text names, or None.

        Args:
            identifier: What somebody typed: a username, an e-mail address or a phone number of
                up to 254 characters. Look it up as the sign-up wrote it. What is evened out here,
                the extension's ``normalise`` must even out too, or counting tells who has a name.
        """
        ...

    def get(self, key: str) -> Account | None:
        """
        Return the account with this key, or None.

        Args:
            key: What ``Account.key`` gave.
        """
        ...

    def replace_password_hash(self, key: str, old: str, new: str) -> None:
        """
        Store a new hash of the same password, made with the current parameters.

        Only if the stored hash is still the old one (``… WHERE password_hash = :old``): the
        password may have been changed meanwhile, and must not be changed back.

        Args:
            key: The account's key.
            old: The encoded hash that the password was checked against.
            new: The encoded hash to store.
        """
        ...


class Member(Account, Protocol):
    """An account that can be written to, and that can lose and regain its way in."""

    @property
    def email(self) -> str | None:
        """Where its mail goes; proved to be the owner's when it was stored. None: no mail."""
        ...

    @property
    def phone(self) -> str | None:
        """Its phone number, with a ``+``, proved to be the owner's. None: no text messages."""
        ...

    @property
    def session_stamp(self) -> str:
        """
        A random text that changes when all sessions must end.

        Sessions hold it; a session whose stamp is another's is over.
        """
        ...

    @property
    def device_stamp(self) -> str:
        """A random text that changes when all known devices must be forgotten."""
        ...

    @property
    def recovery_required(self) -> Collection[str]:
        """The actions (``login``, ``otp.verify``) that stay shut until the owner has recovered."""
        ...


class Members(Accounts, Protocol):
    """
    Where accounts are looked up and changed.

    Each method is one transaction. What it writes must outlive the limiter's store.
    """

    def find(self, identifier: str) -> Member | None:
        """Return the account that the text names, or None; see :meth:`Accounts.find`."""
        ...

    def get(self, key: str) -> Member | None:
        """Return the account with this key, or None."""
        ...

    def set_password(self, key: str, new: str) -> None:
        """
        Store the hash of a new password, and change both stamps: sessions and devices end.

        Args:
            key: The account's key.
            new: The encoded hash to store.
        """
        ...

    def forget_devices(self, key: str) -> None:
        """
        Change the device stamp.

        Args:
            key: The account's key.
        """
        ...

    def require_recovery(self, key: str, action: str) -> bool:
        """
        Keep that the account is shut for this action; tell whether that is new.

        Args:
            key: The account's key.
            action: Such as ``login``: too many failures, whoever made them.
        """
        ...

    def lift_recovery(self, key: str, action: str) -> bool:
        """
        Open the account for this action again; tell whether it was shut.

        Args:
            key: The account's key.
            action: As above.
        """
        ...
